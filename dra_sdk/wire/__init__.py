"""Formats and their limits: API objects, YAML, CDI specs, and the kubelet's protobuf messages.

Source: resource.k8s.io/v1 of Kubernetes 1.34 to 1.37; sigs.k8s.io/yaml; the Container Device Interface specification
1.1.
"""
