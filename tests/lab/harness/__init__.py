"""Makes and boots the virtual machine: its files are cached, nothing of a run stays."""
