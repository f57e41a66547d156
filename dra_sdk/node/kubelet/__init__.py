"""The gRPC services for the kubelet on unix sockets: registration, DRAPlugin, DRAResourceHealth. Protocol only."""
