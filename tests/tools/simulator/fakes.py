"""A small DRA driver over real sockets; a test chooses its answers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from itertools import count
from pathlib import Path
from typing import Any

import grpc

from dra_sdk.model.claim import ClaimRef
from dra_sdk.tools.simulator.kubelet.records import AnsweredDevice
from dra_sdk.wire.proto import dra_health_v1_pb2, dra_v1_pb2, dra_v1beta1_pb2, pluginregistration_v1_pb2

PREFIX = "k8s.io.kubelet.pkg.apis.dra."
MESSAGES = {"v1": dra_v1_pb2, "v1beta1": dra_v1beta1_pb2}
VERSIONS = ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth")

Answer = dict[str, "str | list[AnsweredDevice]"]
"""By claim UID, an error or the devices."""


def one_device(claims: list[ClaimRef]) -> Answer:
    return {
        claim.uid: [AnsweredDevice("", "node-1", f"dev-{claim.name}", (), (f"vendor.com/class={claim.name}",))]
        for claim in claims
    }


class FakeDriver:
    """Both sockets of a driver. Assign `on_prepare`, `on_unprepare`, `on_get_info`, `on_notify` to change behaviour."""

    def __init__(
        self,
        kubelet_dir: Path,
        name: str = "gpu.example.com",
        *,
        instance: str = "",
        versions: tuple[str, ...] = VERSIONS,
        common_socket: bool = False,
        plugin_type: str = "DRAPlugin",
        health: bool = True,
    ) -> None:
        self.name = name
        self.versions = versions
        self.plugin_type = plugin_type
        self.serves_health = health
        tail = f"-{instance}" if instance else ""
        self.registration = kubelet_dir / "plugins_registry" / f"{name}{tail}-reg.sock"
        self.service = self.registration if common_socket else kubelet_dir / "plugins" / name / f"dra{tail}.sock"
        self.endpoint = "" if common_socket else str(self.service)
        self.on_prepare: Callable[[list[ClaimRef]], Answer] = one_device
        self.on_unprepare: Callable[[list[ClaimRef]], Answer] = lambda claims: {claim.uid: "" for claim in claims}
        self.on_get_info: Callable[[], None] = lambda: None
        self.on_notify: Callable[[bool, str], None] = lambda registered, error: None
        self.prepared: list[tuple[str, list[ClaimRef]]] = []
        self.unprepared: list[tuple[str, list[ClaimRef]]] = []
        self.notified: list[tuple[bool, str]] = []
        self._reports: list[list[Any]] = []
        self._changed = threading.Condition()
        self._streaming = False
        self._servers: dict[Path, grpc.Server] = {}

    # -- start and stop

    def start(self) -> FakeDriver:
        self.start_service()
        self.start_registration()
        return self

    def start_service(self) -> None:
        self._serve(self.service, [*self._plugin_handlers(), *self._health_handlers()])

    def start_registration(self) -> None:
        if self.registration != self.service:
            self._serve(self.registration, [self._registration_handler()])

    def stop_service(self) -> None:
        self._halt(self.service)

    def stop_registration(self) -> None:
        self._halt(self.registration)

    def stop(self) -> None:
        for path in list(self._servers):
            self._halt(path)

    def __enter__(self) -> FakeDriver:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _serve(self, path: Path, handlers: list[grpc.GenericRpcHandler]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        server = grpc.server(futures.ThreadPoolExecutor(8))
        if path == self.registration:
            handlers = [*handlers, self._registration_handler()]
        server.add_generic_rpc_handlers(handlers)
        server.add_insecure_port(f"unix:{path}")
        server.start()
        with self._changed:
            self._streaming = True
        self._servers[path] = server

    def _halt(self, path: Path) -> None:
        server = self._servers.pop(path, None)
        if server is None:
            return
        if path == self.service:
            self.end_streams()
        server.stop(0).wait()
        path.unlink(missing_ok=True)

    # -- health

    def report(self, *devices: tuple[str, str, int, str], timeout: int = 0) -> None:
        """Sends one message; devices are (pool, device, health, message)."""
        message = [
            dra_health_v1_pb2.DeviceHealth(
                device=dra_health_v1_pb2.DeviceIdentifier(pool_name=pool, device_name=device),
                health=health,
                message=text,
                health_check_timeout_seconds=timeout,
            )
            for pool, device, health, text in devices
        ]
        with self._changed:
            self._reports.append(message)
            self._changed.notify_all()

    def end_streams(self) -> None:
        with self._changed:
            self._streaming = False
            self._changed.notify_all()

    def _watch(self, _: Any, context: grpc.ServicerContext) -> Iterator[dra_health_v1_pb2.NodeWatchResourcesResponse]:
        context.add_callback(self._wake)
        for number in count():
            with self._changed:
                while len(self._reports) <= number and self._streaming and context.is_active():
                    self._changed.wait()
                if not self._streaming or not context.is_active():
                    return
                message = self._reports[number]
            yield dra_health_v1_pb2.NodeWatchResourcesResponse(devices=message)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    # -- handlers

    def _registration_handler(self) -> grpc.GenericRpcHandler:
        messages = pluginregistration_v1_pb2

        def get_info(_: Any, __: grpc.ServicerContext) -> Any:
            self.on_get_info()
            return messages.PluginInfo(
                type=self.plugin_type, name=self.name, endpoint=self.endpoint, supported_versions=self.versions
            )

        def notify(status: Any, _: grpc.ServicerContext) -> Any:
            self.notified.append((status.plugin_registered, status.error))
            self.on_notify(status.plugin_registered, status.error)
            return messages.RegistrationStatusResponse()

        return _generic(
            "pluginregistration.Registration",
            GetInfo=(get_info, messages.InfoRequest, messages.PluginInfo),
            NotifyRegistrationStatus=(notify, messages.RegistrationStatus, messages.RegistrationStatusResponse),
        )

    def _plugin_handlers(self) -> Iterator[grpc.GenericRpcHandler]:
        for version, messages in MESSAGES.items():
            yield _generic(
                f"{PREFIX}{version}.DRAPlugin",
                NodePrepareResources=(
                    self._preparer(version),
                    messages.NodePrepareResourcesRequest,
                    messages.NodePrepareResourcesResponse,
                ),
                NodeUnprepareResources=(
                    self._unpreparer(version),
                    messages.NodeUnprepareResourcesRequest,
                    messages.NodeUnprepareResourcesResponse,
                ),
            )

    def _preparer(self, version: str) -> Callable[[Any, Any], Any]:
        messages = MESSAGES[version]

        def prepare(request: Any, _: grpc.ServicerContext) -> Any:
            claims = [ClaimRef(claim.namespace, claim.name, claim.uid) for claim in request.claims]
            self.prepared.append((version, claims))
            response = messages.NodePrepareResourcesResponse()
            for uid, answer in self.on_prepare(claims).items():
                entry = response.claims[uid]
                if isinstance(answer, str):
                    entry.error = answer
                    continue
                for device in answer:
                    fields: dict[str, Any] = {"share_id": device.share_id} if device.share_id else {}
                    entry.devices.add(
                        pool_name=device.pool,
                        device_name=device.device,
                        request_names=device.requests,
                        cdi_device_ids=device.cdi_ids,
                        **fields,
                    )
            return response

        return prepare

    def _unpreparer(self, version: str) -> Callable[[Any, Any], Any]:
        messages = MESSAGES[version]

        def unprepare(request: Any, _: grpc.ServicerContext) -> Any:
            claims = [ClaimRef(claim.namespace, claim.name, claim.uid) for claim in request.claims]
            self.unprepared.append((version, claims))
            response = messages.NodeUnprepareResourcesResponse()
            for uid, error in self.on_unprepare(claims).items():
                response.claims[uid].error = error
            return response

        return unprepare

    def _health_handlers(self) -> Iterator[grpc.GenericRpcHandler]:
        if not self.serves_health:
            return
        for version in ("v1", "v1alpha1"):
            handler = grpc.unary_stream_rpc_method_handler(
                self._watch,
                request_deserializer=dra_health_v1_pb2.NodeWatchResourcesRequest.FromString,
                response_serializer=dra_health_v1_pb2.NodeWatchResourcesResponse.SerializeToString,
            )
            yield grpc.method_handlers_generic_handler(f"{version}.DRAResourceHealth", {"NodeWatchResources": handler})


def _generic(service: str, **methods: tuple[Callable[[Any, Any], Any], Any, Any]) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(
        service,
        {
            name: grpc.unary_unary_rpc_method_handler(
                behaviour, request_deserializer=request.FromString, response_serializer=response.SerializeToString
            )
            for name, (behaviour, request, response) in methods.items()
        },
    )
