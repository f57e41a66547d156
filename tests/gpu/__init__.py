"""Tests of the GPU driver on a machine with NVIDIA GPUs: `make test-gpu`."""
