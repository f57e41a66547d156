"""Tests of the virtual machine as a node of a real cluster."""
