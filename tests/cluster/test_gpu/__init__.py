"""The GPU driver on a real node, with the GPUs in memory behind a stub of NVIDIA's library."""
