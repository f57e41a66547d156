"""Tests that run inside the virtual machine, as root, on its real kernel; nothing here runs on the host."""
