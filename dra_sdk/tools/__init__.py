"""What runs on a laptop or in CI, never on a node: scheduling as kube-scheduler does it, a simulator, conformance."""
