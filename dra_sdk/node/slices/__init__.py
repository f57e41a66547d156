"""From desired pools to ResourceSlices in the API server: `plan` decides what, `diff` how, `controller` keeps it so."""
