"""A device plugin for tests, on real sockets: what it publishes and answers can be anything.

with FakePlugin(directory, {"gpu0": "Healthy"}) as plugin:
    plugin.register()
    plugin.publish({"gpu0": "Unhealthy"})
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Condition, Event, Thread
from types import TracebackType
from typing import Any, Final, Self

import grpc

from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire

KUBELET: Final = "kubelet.sock"
RESOURCE: Final = "vendor.com/thing"
_SECONDS: Final = 10.0
_STEP: Final = 0.05
_OPTIONS: Final = (("grpc.default_authority", "localhost"),)  # the real kubelet refuses a path as authority


def wire_devices(devices: Mapping[str, str], numa: Mapping[str, Sequence[int]] | None = None) -> list[wire.Device]:
    """Make messages for devices: the health of each by id, and the NUMA nodes of some."""
    nodes = {
        id_: wire.TopologyInfo(nodes=[wire.NUMANode(ID=node) for node in ids]) for id_, ids in (numa or {}).items()
    }
    return [wire.Device(ID=id_, health=health, topology=nodes.get(id_)) for id_, health in devices.items()]


def device_of_each(ids: Sequence[str]) -> wire.AllocateResponse:
    """Return an answer to Allocate: `/dev/<id>` for each device, and a variable with all ids."""
    nodes = [wire.DeviceSpec(container_path=f"/dev/{id_}", host_path=f"/dev/{id_}", permissions="rw") for id_ in ids]
    response = wire.ContainerAllocateResponse(envs={"THINGS": ",".join(ids)}, devices=nodes)
    return wire.AllocateResponse(container_responses=[response])


class FakePlugin:
    """A device plugin with the socket `endpoint` in `directory`, where the bridge has `kubelet.sock`.

    resource: its extended resource.
    options: its answer to GetDevicePluginOptions; None: it does not know the call.
    allocate: answers Allocate, given the ids of devices; bytes are sent as they are, an exception is an error.
    prefer: answers GetPreferredAllocation, given what is available and how many are wanted.
    threads: for calls at a time; one that is registered for several resources has a ListAndWatch for each of them.
    hangs: set it, and Allocate does not return until it is cleared or the plugin stops.
    calls: the calls so far, each with the ids.
    streams: how often ListAndWatch was called.
    """

    def __init__(
        self,
        directory: Path,
        devices: Mapping[str, str] | Sequence[wire.Device] | bytes,
        *,
        resource: str = RESOURCE,
        endpoint: str = "thing.sock",
        options: wire.DevicePluginOptions | None = None,
        allocate: Callable[[Sequence[str]], wire.AllocateResponse | bytes] = device_of_each,
        threads: int = 8,
    ) -> None:
        self.resource, self.options, self.allocate = resource, options, allocate
        self.prefer: Callable[[Sequence[str], int], Sequence[str]] = lambda available, size: available[:size]
        self.hangs = Event()
        self.calls: list[tuple[str, tuple[str, ...]]] = []
        self.streams = 0
        self._directory, self._endpoint = directory, endpoint
        self._changed, self._threads = Condition(), threads
        self._list, self._version, self._stopped = _message(devices), 0, False
        self._server: grpc.Server | None = None
        self._follower: Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.stop()

    @property
    def path(self) -> Path:
        """Its socket."""
        return self._directory / self._endpoint

    def start(self) -> None:
        """Serve the socket."""
        self._stopped = False
        self._pool = ThreadPoolExecutor(self._threads)
        self._server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        methods = {
            "GetDevicePluginOptions": _unary(self._options, wire.Empty),
            "Allocate": _unary(self._allocate, wire.AllocateRequest),
            "GetPreferredAllocation": _unary(self._preferred, wire.PreferredAllocationRequest),
            "PreStartContainer": _unary(self._pre_start, wire.PreStartContainerRequest),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(
                self._list_and_watch, request_deserializer=wire.Empty.FromString, response_serializer=_encode
            ),
        }
        if self.options is None:
            del methods["GetDevicePluginOptions"]
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods),))
        self._directory.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix:{self.path}")
        self._server.start()

    def stop(self) -> None:
        """Stop serving, as at the end of the plugin's process."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self.hangs.clear()
        if self._follower is not None:
            self._follower.join(_SECONDS)
        if self._server is not None:
            self._server.stop(0).wait()
            self._pool.shutdown(wait=True)

    def register(self, version: str = "v1beta1") -> None:
        """Register at `kubelet.sock`, which may not be there yet. grpc.RpcError if the bridge refuses."""
        kubelet, end = self._directory / KUBELET, time.monotonic() + _SECONDS
        while not kubelet.exists() and time.monotonic() < end:
            time.sleep(_STEP)
        request = wire.RegisterRequest(
            version=version, endpoint=self._endpoint, resource_name=self.resource, options=self.options
        )
        with closing(grpc.insecure_channel(f"unix:{kubelet}", options=_OPTIONS)) as channel:
            call = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=wire.RegisterRequest.SerializeToString,
                response_deserializer=wire.Empty.FromString,
            )
            call(request, timeout=_SECONDS, wait_for_ready=True)

    def follow_kubelet(self) -> None:
        """Register whenever there is a new `kubelet.sock`, as most plugins do."""
        self._follower = Thread(target=self._follow, daemon=True)
        self._follower.start()

    def publish(self, devices: Mapping[str, str] | Sequence[wire.Device] | bytes) -> None:
        """Send another list of devices."""
        with self._changed:
            self._list, self._version = _message(devices), self._version + 1
            self._changed.notify_all()

    def _follow(self) -> None:
        seen = 0
        while not self._stopped:
            try:
                now = (self._directory / KUBELET).stat().st_ino
                if now != seen:
                    self.register()
                    seen = now
            except (OSError, grpc.RpcError):
                seen = 0
            time.sleep(_STEP)

    def _options(self, _request: wire.Empty, _context: grpc.ServicerContext) -> wire.DevicePluginOptions:
        return self.options or wire.DevicePluginOptions()

    def _list_and_watch(self, _request: wire.Empty, context: grpc.ServicerContext) -> Iterator[Any]:
        self.streams += 1
        sent = -1
        while context.is_active():
            with self._changed:
                if self._version == sent:
                    self._changed.wait(_STEP)
                stopped, version, message = self._stopped, self._version, self._list
            if stopped:
                return
            if version != sent:
                sent = version
                yield message

    def _allocate(self, request: wire.AllocateRequest, context: grpc.ServicerContext) -> Any:
        (container,) = request.container_requests
        self.calls.append(("Allocate", tuple(container.devices_ids)))
        while self.hangs.is_set() and context.is_active():
            time.sleep(_STEP)
        return self.allocate(list(container.devices_ids))

    def _preferred(self, request: wire.PreferredAllocationRequest, _context: grpc.ServicerContext) -> Any:
        (asked,) = request.container_requests
        self.calls.append(("GetPreferredAllocation", tuple(asked.available_deviceIDs)))
        response = wire.ContainerPreferredAllocationResponse(
            deviceIDs=self.prefer(list(asked.available_deviceIDs), asked.allocation_size)
        )
        return wire.PreferredAllocationResponse(container_responses=[response])

    def _pre_start(self, request: wire.PreStartContainerRequest, _context: grpc.ServicerContext) -> Any:
        self.calls.append(("PreStartContainer", tuple(request.devices_ids)))
        return wire.PreStartContainerResponse()


def _message(devices: Mapping[str, str] | Sequence[wire.Device] | bytes) -> wire.ListAndWatchResponse | bytes:
    if isinstance(devices, bytes):
        return devices
    messages = wire_devices(devices) if isinstance(devices, Mapping) else devices
    return wire.ListAndWatchResponse(devices=messages)


def _unary(behaviour: Callable[[Any, grpc.ServicerContext], Any], request: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        behaviour, request_deserializer=request.FromString, response_serializer=_encode
    )


def _encode(message: Any) -> bytes:
    return message if isinstance(message, bytes) else bytes(message.SerializeToString())
