"""The GPU driver on a real node, with GPUs of the stub of NVIDIA's library."""
