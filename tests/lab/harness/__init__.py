"""Installs and boots the virtual machine. Its files are cached; a run leaves nothing else behind."""
