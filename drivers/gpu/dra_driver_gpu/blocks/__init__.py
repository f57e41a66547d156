"""Building blocks that know nothing of NVIDIA: each module is one thing that a driver for any hardware needs."""
