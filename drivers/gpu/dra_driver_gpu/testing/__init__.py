"""For tests of the GPU driver: NVML in memory, a stub of its library, and nodes with GPUs that are made of files."""
