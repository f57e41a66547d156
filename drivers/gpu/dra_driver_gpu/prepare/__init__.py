"""Setting GPUs up for a claim, and undoing it: MIG devices, sharing, MPS daemons, VFIO."""
