"""Tests that run as root on the real kernel of the virtual machine, and never on the host."""
