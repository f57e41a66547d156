"""Protobuf messages of the kubelet's gRPC APIs. `make proto` generates them from the .proto files in this folder.

Source: k8s.io/kubelet pkg/apis: pluginregistration, dra, dra-health.
"""
