"""Values that an author meets: devices, pools, claims, edits, configuration, health. No I/O."""
