"""Tests on a real control plane, kubelet and containerd."""
