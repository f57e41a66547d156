"""The GPU driver on a real node, with the GPUs of a stub of NVIDIA's library."""
