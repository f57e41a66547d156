"""What a user may configure: nothing so far, by a kind that claims in the field carry."""

from __future__ import annotations

from dra_sdk import OpaqueConfig


class GpuConfig(OpaqueConfig, api_version="gpu.resource.amd.com/v1alpha1"):
    """Configuration of a GPU or a partition; it has no fields."""
