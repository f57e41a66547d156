"""One instance of the driver: its sockets and its answers on them."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
from google.protobuf.unknown_fields import UnknownFieldSet

from dra_sdk.errors import DraError
from dra_sdk.node.kubelet.draplugin import VERSIONS
from dra_sdk.node.kubelet.health import HEALTH_VERSIONS
from dra_sdk.tools.conformance.environment import NodeEnvironment
from dra_sdk.wire.proto import pluginregistration_v1_pb2
from tests.tools.conformance.mutants import Faults
from tests.tools.conformance.mutants.cdi import Specs
from tests.tools.conformance.mutants.health import Health
from tests.tools.conformance.mutants.nri import Plugin
from tests.tools.conformance.mutants.preparer import Preparer, RefusedError
from tests.tools.conformance.mutants.publisher import Publisher
from tests.tools.conformance.mutants.state import State

THREADS = 16


class MutantDriver:
    """A driver with this name and these faults; `pod_uid` distinguishes instances."""

    def __init__(self, name: str, environment: NodeEnvironment, faults: Faults, pod_uid: str = "") -> None:
        self.name, self.environment, self.faults = name, environment, faults
        self.problem = ""
        data = environment.plugins_dir / name
        data.mkdir(parents=True, exist_ok=True)
        if "open-data-directory" in faults:
            data.chmod(0o777)
        tail = f"-{pod_uid}" if pod_uid and "one-socket" not in faults else ""
        self.registration = environment.registry_dir / self._socket_name(tail)
        self.service = data / f"dra{tail}.sock"
        assert environment.kubeconfig
        self.publisher = Publisher(name, environment.node_name, environment.kubeconfig, faults)
        self.specs = Specs(environment.cdi_dir, name, faults)
        self.preparer = Preparer(
            name,
            lambda: self.publisher.client,
            State(data / "claims", faults),
            self.specs,
            faults,
            environment.host_root,
        )
        self.health = Health(name, environment.node_name, self.preparer, faults)
        self.plugin = (
            Plugin(environment.nri_socket, self.preparer.prepared_cpus, faults, self.die) if "nri" in faults else None
        )
        self._servers: list[tuple[Path, grpc.Server, ThreadPoolExecutor]] = []
        self._asked = 0

    # -- life

    def start(self) -> None:
        self.environment.plugins_dir.mkdir(exist_ok=True)
        if "stale-socket" in self.faults and self.service.exists():
            self.problem = "ended with status 1"
            return
        if "late-service" not in self.faults:  # never is too late as well
            self._serve(self.service, [*self._plugin_handlers(), *self._health_handlers(), *self._any_handler()])
        self._serve(self.registration, [self._registration_handler()])
        self.publisher.start()
        if self.plugin:
            self.plugin.start()

    def stop(self) -> None:
        """As SIGTERM does."""
        self._close(unlink="leaves-sockets" not in self.faults)
        if "clears-cdi" in self.faults:
            self.specs.clear()
        self.publisher.stop(delete="deletes-slices" in self.faults)

    def kill(self) -> None:
        """As SIGKILL does: everything on disk stays as it is."""
        self.preparer.dead = True
        self._close(unlink=False)
        self.publisher.stop()

    def die(self, how: str) -> None:
        """Ends by itself."""
        self.problem = how

    def _close(self, *, unlink: bool) -> None:
        self.health.stopped = True
        if self.plugin:
            self.plugin.stop()
        for path, server, pool in reversed(self._servers):
            if unlink:
                path.unlink(missing_ok=True)
            server.stop(0).wait()
            pool.shutdown()
        self._servers.clear()

    # -- sockets

    def _socket_name(self, tail: str) -> str:
        if "odd-socket-name" in self.faults:
            return "plugin.sock"
        dot = "." if "hidden-socket" in self.faults else ""
        return f"{dot}{self.name}{tail}-reg.sock"

    def _serve(self, path: Path, handlers: list[grpc.GenericRpcHandler]) -> None:
        pool = ThreadPoolExecutor(THREADS)
        server = grpc.server(pool, options=[("grpc.so_reuseport", 0)])
        server.add_generic_rpc_handlers(handlers)
        bound = path.with_name(f".{path.name[:30]}{len(self._servers)}")  # gRPC removes the socket that it bound
        bound.unlink(missing_ok=True)
        server.add_insecure_port(f"unix:{bound}")
        bound.chmod(0o666 if "open-socket" in self.faults else 0o600)
        server.start()
        bound.rename(path)
        self._servers.append((path, server, pool))

    # -- registration

    def _registration_handler(self) -> grpc.GenericRpcHandler:
        wire = pluginregistration_v1_pb2
        methods = {
            "GetInfo": _unary(self._get_info, wire.InfoRequest.FromString, wire.PluginInfo),
            "NotifyRegistrationStatus": _unary(
                self._notify, wire.RegistrationStatus.FromString, wire.RegistrationStatusResponse
            ),
        }
        return grpc.method_handlers_generic_handler("pluginregistration.Registration", methods)

    def _get_info(self, _request: Any, _context: Any) -> Any:
        self._asked += 1
        if "slow-get-info" in self.faults or ("slow-first-get-info" in self.faults and self._asked == 1):
            time.sleep(1.2)
        while "get-info-waits" in self.faults and self.preparer.busy:
            time.sleep(0.01)
        versions = self._versions()
        if "changing-info" in self.faults and self._asked > 1:
            versions.append("v2.DRAPlugin")
        return pluginregistration_v1_pb2.PluginInfo(
            type="CSIPlugin" if "csi-type" in self.faults else "DRAPlugin",
            name="Not A Name" if "bad-name" in self.faults else self.name,
            endpoint="dra.sock" if "relative-endpoint" in self.faults else str(self.service),
            supported_versions=versions,
        )

    def _versions(self) -> list[str]:
        if "plain-versions" in self.faults:
            return ["1.0.0"]
        plugin = list(VERSIONS)
        if "old-first" in self.faults:
            plugin.reverse()
        return plugin if {"no-health", "unadvertised-health"} & self.faults else [*plugin, *HEALTH_VERSIONS]

    def _notify(self, status: Any, context: Any) -> Any:
        if "refuses-news" in self.faults:
            context.abort(grpc.StatusCode.INTERNAL, "no news, please")
        if not status.plugin_registered and "dies-of-refusal" in self.faults:
            self.die("ended with status 1")
        return pluginregistration_v1_pb2.RegistrationStatusResponse()

    # -- the service

    def _plugin_handlers(self) -> list[grpc.GenericRpcHandler]:
        handlers = []
        for version, (name, wire) in VERSIONS.items():
            if "one-version" in self.faults and version != "v1.DRAPlugin":
                continue
            service = version if "short-service-name" in self.faults else name
            methods = {
                "NodePrepareResources": self._method(wire, version, "NodePrepareResources", self._prepare),
                "NodeUnprepareResources": self._method(wire, version, "NodeUnprepareResources", self._unprepare),
            }
            handlers.append(grpc.method_handlers_generic_handler(service, methods))
        return handlers

    def _method(self, wire: ModuleType, version: str, name: str, behaviour: Callable[..., Any]) -> Any:
        request = getattr(wire, f"{name}Request")

        def read(data: bytes) -> Any:
            try:
                message = request.FromString(data)
            except Exception:
                if "answers-garbage" in self.faults:
                    return request()
                raise
            if "refuses-unknown-fields" in self.faults and len(UnknownFieldSet(message)):
                raise ValueError("unknown fields")
            return message

        return _unary(
            lambda message, context: behaviour(wire, version, message, context), read, getattr(wire, f"{name}Response")
        )

    def _prepare(self, wire: Any, version: str, request: Any, context: Any) -> Any:
        response = wire.NodePrepareResourcesResponse()
        claims = list(request.claims)
        if "dies-of-odd" in self.faults and any(not claim.uid for claim in claims):
            context.abort(grpc.StatusCode.UNAVAILABLE, "the process has crashed")
        if "empty-answer" in self.faults:
            return response
        for claim in claims[:1] if "first-claim-only" in self.faults else claims:
            entry = response.claims[claim.uid]
            try:
                prepared = self.preparer.prepare(claim.namespace, claim.name, claim.uid, context.is_active)
                entry.devices.extend(self._device(wire, version, device) for device in prepared)
            except (RefusedError, DraError, ValueError, OSError) as error:
                entry.error = str(error) or type(error).__name__
            if "foreign-device" in self.faults:
                entry.devices.add(pool_name="pool", device_name="stranger", request_names=["request-0"])
            if "fewer-devices" in self.faults:
                del entry.devices[:]
        if "extra-entry" in self.faults and claims:
            response.claims["somebody-else"].error = ""
        return response

    def _unprepare(self, wire: Any, _version: str, request: Any, _context: Any) -> Any:
        response = wire.NodeUnprepareResourcesResponse()
        if "unprepare-empty-answer" in self.faults:
            return response
        for claim in request.claims:
            entry = response.claims[claim.uid]
            try:
                self.preparer.unprepare(claim.namespace, claim.name, claim.uid)
            except (RefusedError, DraError, ValueError, OSError) as error:
                entry.error = str(error) or type(error).__name__
        return response

    def _device(self, wire: Any, version: str, device: dict[str, Any]) -> Any:
        cdi = device["cdi"] if "unqualified-ids" in self.faults else f"{self.specs.kind}={device['cdi']}"
        bare = "v1beta1-differs" in self.faults and version != "v1.DRAPlugin"
        message = wire.Device(
            request_names=[device["answered"]],
            pool_name=device["pool"],
            device_name=device["name"],
            cdi_device_ids=[] if bare else [cdi],
        )
        if device["share"] and version == "v1.DRAPlugin" and "no-share-ids" not in self.faults:
            message.share_id = device["share"]
        return message

    # -- the rest

    def _health_handlers(self) -> list[grpc.GenericRpcHandler]:
        if "no-health" in self.faults:
            return []
        handlers = []
        for version, (_, wire) in HEALTH_VERSIONS.items():
            handler = grpc.unary_stream_rpc_method_handler(
                self.health.watch,
                request_deserializer=wire.NodeWatchResourcesRequest.FromString,
                response_serializer=lambda message: message.SerializeToString(),
            )
            handlers.append(grpc.method_handlers_generic_handler(version, {"NodeWatchResources": handler}))
        return handlers

    def _any_handler(self) -> list[grpc.GenericRpcHandler]:
        return [_Anything()] if "answers-anything" in self.faults else []


class _Anything(grpc.GenericRpcHandler):
    def service(self, _details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(lambda _request, _context: b"")


def _unary(behaviour: Callable[[Any, Any], Any], read: Callable[[bytes], Any], response: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        behaviour, request_deserializer=read, response_serializer=response.SerializeToString
    )
