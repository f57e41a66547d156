"""The calls of one device plugin on its socket."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import grpc

from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire
from dra_sdk.rpc.client import CallError, SocketClient

_OPTIONS_SECONDS: Final = 10.0
_T = TypeVar("_T")


class PluginClient(SocketClient):
    """The calls of a plugin on the unix socket `path`. It connects with the first of them. Each raises CallError."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "v1beta1.DevicePlugin", f"device plugin {path.name}")

    def options(self) -> wire.DevicePluginOptions | None:
        """Return what the plugin wants to be asked; None if it does not know the call."""
        try:
            return self.call("GetDevicePluginOptions", wire.Empty(), wire.DevicePluginOptions, _OPTIONS_SECONDS)
        except CallError as error:
            if error.code is grpc.StatusCode.UNIMPLEMENTED:
                return None
            raise

    def watch(self) -> Iterator[wire.ListAndWatchResponse]:
        """Return the plugin's lists of devices, until it or the connection ends."""
        return self.stream("ListAndWatch", wire.Empty(), wire.ListAndWatchResponse)

    def allocate(self, ids: Sequence[str], seconds: float) -> wire.ContainerAllocateResponse:
        """Return what a container gets with these devices."""
        request = wire.AllocateRequest(container_requests=[wire.ContainerAllocateRequest(devices_ids=ids)])
        answer = self.call("Allocate", request, wire.AllocateResponse, seconds)
        return self._only("Allocate", answer.container_responses)

    def pre_start(self, ids: Sequence[str], seconds: float) -> None:
        """Let the plugin prepare the devices for a container that starts."""
        request = wire.PreStartContainerRequest(devices_ids=ids)
        self.call("PreStartContainer", request, wire.PreStartContainerResponse, seconds)

    def preferred(self, available: Sequence[str], size: int, seconds: float) -> list[str]:
        """Return which of the available devices the plugin would give together."""
        asked = wire.ContainerPreferredAllocationRequest(available_deviceIDs=available, allocation_size=size)
        request = wire.PreferredAllocationRequest(container_requests=[asked])
        answer = self.call("GetPreferredAllocation", request, wire.PreferredAllocationResponse, seconds)
        return list(self._only("GetPreferredAllocation", answer.container_responses).deviceIDs)

    def _only(self, method: str, answers: Sequence[_T]) -> _T:
        if len(answers) != 1:
            raise CallError(f"{self.peer} answered {method} for {len(answers)} containers, not 1")
        return answers[0]
