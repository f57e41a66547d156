"""Calls of one device plugin on its socket, with errors that name the plugin, the call and the time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import grpc

from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire
from dra_sdk import RetriableError

_SERVICE: Final = "/v1beta1.DevicePlugin"
_OPTIONS_SECONDS: Final = 10.0
_DETAILS: Final = 300  # characters of a plugin's own error
_OPTIONS: Final = (
    ("grpc.default_authority", "localhost"),  # the path of a socket is none that every server accepts
    ("grpc.use_local_subchannel_pool", 1),  # a plugin that has restarted is not waited for
    ("grpc.initial_reconnect_backoff_ms", 200),
)


class PluginError(RetriableError):
    """A plugin has not answered, or has answered what it must not.

    unimplemented: whether it does not know the call.
    """

    def __init__(self, message: str, *, unimplemented: bool = False) -> None:
        super().__init__(message)
        self.unimplemented = unimplemented


class PluginClient:
    """The calls of a plugin on the unix socket `path`. It connects with the first of them. Each raises PluginError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._channel = grpc.insecure_channel(f"unix:{path}", options=_OPTIONS)

    def options(self) -> wire.DevicePluginOptions | None:
        """What the plugin wants to be asked; None if it does not know the call."""
        try:
            found: wire.DevicePluginOptions = self._call(
                "GetDevicePluginOptions", wire.Empty(), wire.DevicePluginOptions, _OPTIONS_SECONDS
            )
        except PluginError as error:
            if error.unimplemented:
                return None
            raise
        return found

    def watch(self) -> Iterator[wire.ListAndWatchResponse]:
        """The plugin's lists of devices, until it or the connection ends."""
        stub = self._channel.unary_stream(
            f"{_SERVICE}/ListAndWatch",
            request_serializer=wire.Empty.SerializeToString,
            response_deserializer=wire.ListAndWatchResponse.FromString,
        )
        try:
            yield from stub(wire.Empty())
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed
            raise self._error("ListAndWatch", error) from error

    def allocate(self, ids: Sequence[str], seconds: float) -> wire.ContainerAllocateResponse:
        """What a container gets with these devices."""
        request = wire.AllocateRequest(container_requests=[wire.ContainerAllocateRequest(devices_ids=ids)])
        answer: wire.AllocateResponse = self._call("Allocate", request, wire.AllocateResponse, seconds)
        self._refuse_unless_one("Allocate", answer.container_responses)
        return answer.container_responses[0]

    def pre_start(self, ids: Sequence[str], seconds: float) -> None:
        """Let the plugin prepare the devices for a container that starts."""
        request = wire.PreStartContainerRequest(devices_ids=ids)
        self._call("PreStartContainer", request, wire.PreStartContainerResponse, seconds)

    def preferred(self, available: Sequence[str], size: int, seconds: float) -> list[str]:
        """Which of the available devices the plugin would give together."""
        method = "GetPreferredAllocation"
        asked = wire.ContainerPreferredAllocationRequest(available_deviceIDs=available, allocation_size=size)
        request = wire.PreferredAllocationRequest(container_requests=[asked])
        answer = self._call(method, request, wire.PreferredAllocationResponse, seconds)
        self._refuse_unless_one(method, answer.container_responses)
        return list(answer.container_responses[0].deviceIDs)

    def close(self) -> None:
        """End all calls."""
        self._channel.close()

    def _call(self, method: str, request: Any, response: Any, seconds: float) -> Any:
        stub = self._channel.unary_unary(
            f"{_SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        try:
            return stub(request, timeout=seconds)
        except (grpc.RpcError, ValueError) as error:
            raise self._error(method, error, seconds) from error

    def _refuse_unless_one(self, method: str, answers: Sequence[Any]) -> None:
        if len(answers) != 1:
            raise PluginError(f"device plugin {self._path.name} answered {method} for {len(answers)} containers, not 1")

    def _error(self, method: str, error: Exception, seconds: float | None = None) -> PluginError:
        who = f"device plugin {self._path.name}"
        if not isinstance(error, grpc.Call):
            return PluginError(
                f"{who}: {method} was ended: the plugin has gone or registered again, or the bridge stops"
            )
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and seconds is not None:
            return PluginError(f"{who} has not answered {method} within {seconds:.3g} s")
        details = " ".join((error.details() or "no reason given").split())[:_DETAILS]
        unknown = error.code() is grpc.StatusCode.UNIMPLEMENTED
        return PluginError(f"{who} failed in {method}: {error.code().name}: {details}", unimplemented=unknown)
