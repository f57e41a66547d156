"""Which claims use which devices, and the tables about that."""
