"""Protobuf messages of the kubelet and of NRI. `make proto` generates them from the .proto files in this folder.

Source: k8s.io/kubelet pkg/apis: pluginregistration, dra, dra-health; containerd/nri pkg/api; containerd/ttrpc.
"""
