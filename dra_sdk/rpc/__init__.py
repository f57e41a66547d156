"""gRPC on unix sockets: how a driver serves one, calls one, and follows a stream of one.

The SDK serves the kubelet by it; drivers talk by it to a vendor's service on the node. All names are in the modules.
"""
