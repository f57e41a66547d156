"""Generated protobuf messages of the kubelet's gRPC APIs; `make proto` regenerates them from the .proto files here."""
