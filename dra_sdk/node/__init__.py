"""What runs as root on every node: the process of a driver, between the API server, the kubelet and the hardware."""
