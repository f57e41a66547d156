"""Formats: API objects and their limits, CDI specs, state files, and the kubelet's protobuf messages."""
