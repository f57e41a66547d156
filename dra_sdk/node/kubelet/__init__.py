"""What the kubelet talks to: registration, DRAPlugin v1 and v1beta1 on unix sockets. Protocol only."""
