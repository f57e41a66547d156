"""Device metadata for workloads (KEP-5304): files in a container that say what was allocated. Writing and reading."""
