"""What hooks about pods and containers get and return. Source: NRI's `api.proto`; `docs/how-to/nri.md`."""

from dra_sdk.model.container import Container, ContainerAdjustment, ContainerResources, PodSandbox

__all__ = ["Container", "ContainerAdjustment", "ContainerResources", "PodSandbox"]
