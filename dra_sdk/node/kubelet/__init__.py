"""The gRPC services for the kubelet on unix sockets: registration, DRAPlugin, DRAResourceHealth. Protocol only.

Source: KEP-4381, KEP-4680; k8s.io/kubelet pkg/apis: pluginregistration, dra, dra-health.
"""
