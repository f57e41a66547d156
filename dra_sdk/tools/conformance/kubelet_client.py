"""The kubelet's side of the gRPC protocol: calls to one driver, and how the kubelet judges the answers.

No call raises: every outcome is a result, and every exchange is recorded as evidence. Source: Kubernetes 1.36
pkg/kubelet/cm/dra/manager.go and pkg/kubelet/pluginmanager/operationexecutor.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Generic, TypeVar

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from dra_sdk.tools.conformance.outcomes import Exchange, Recorder
from dra_sdk.tools.simulator.kubelet.records import ClaimRef, PreparedDevice, claim_name
from dra_sdk.tools.simulator.kubelet.rpc import prepared_device
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.wire.proto import (
    dra_health_v1_pb2,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    pluginregistration_v1_pb2,
)

M = TypeVar("M", bound=Message)
V1: Final = "v1.DRAPlugin"
V1BETA1: Final = "v1beta1.DRAPlugin"
PLUGIN_VERSIONS: Final[dict[str, ModuleType]] = {V1: dra_v1_pb2, V1BETA1: dra_v1beta1_pb2}
"""The versions that kubelets know, newest first."""
HEALTH_VERSIONS: Final[dict[str, ModuleType]] = {
    "v1.DRAResourceHealth": dra_health_v1_pb2,
    "v1alpha1.DRAResourceHealth": dra_health_v1alpha1_pb2,
}
PREPARE: Final = "NodePrepareResources"
UNPREPARE: Final = "NodeUnprepareResources"
_REGISTRATION: Final = "/pluginregistration.Registration/"
_PACKAGE: Final = "/k8s.io.kubelet.pkg.apis.dra."
_MAX_MESSAGE: Final = 16 * 1024 * 1024  # as in the kubelet
_OPTIONS: Final = [
    ("grpc.use_local_subchannel_pool", 1),  # one connection for each channel
    ("grpc.enable_http_proxy", 0),
    ("grpc.max_receive_message_length", _MAX_MESSAGE),
]


@dataclass(frozen=True)
class RpcResult(Generic[M]):
    """The outcome of one unary call.

    code: gRPC status code.
    details: the status message; empty for OK.
    message: the response; None unless the code is OK.
    seconds: duration of the call.
    """

    code: grpc.StatusCode
    details: str
    message: M | None
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the status is OK."""
        return self.code is grpc.StatusCode.OK

    @property
    def status(self) -> str:
        """Code and details on one line."""
        return "OK" if self.ok else f"{self.code.name}: {self.details}"


class Channel:
    """One connection to a unix socket, opened by the first call."""

    def __init__(self, socket: Path, recorder: Recorder) -> None:
        self.socket = socket
        self._recorder = recorder
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=_OPTIONS)

    def close(self) -> None:
        """Close the connection; cancels calls in progress."""
        self._channel.close()

    def call(self, method: str, request: Message, response: type[M], timeout: float) -> RpcResult[M]:
        """Make a unary call; `method` is a full path such as `/pluginregistration.Registration/GetInfo`."""
        result = self._call(method, request.SerializeToString(), response, timeout)
        self._record(method, to_json(request), result)
        return result

    def call_with_bytes(self, method: str, request: bytes, response: type[M], timeout: float) -> RpcResult[M]:
        """Make a unary call with any bytes as the request."""
        result = self._call(method, request, response, timeout)
        self._record(method, {"bytes": request[:200].hex()}, result)
        return result

    def stream(self, method: str, request: Message, response: type[M], timeout: float) -> Stream[M]:
        """Open a server stream that ends after `timeout` seconds."""
        call = self._channel.unary_stream(
            method, request_serializer=_serialized, response_deserializer=response.FromString
        )
        return Stream(call(request, timeout=timeout), method, self._recorder)

    def _call(self, method: str, request: bytes, response: type[M], timeout: float) -> RpcResult[M]:
        call = self._channel.unary_unary(
            method, request_serializer=lambda data: data, response_deserializer=response.FromString
        )
        began = time.monotonic()
        try:
            message = call(request, timeout=timeout)
        except grpc.RpcError as error:
            return RpcResult(error.code(), error.details() or "", None, time.monotonic() - began)
        return RpcResult(grpc.StatusCode.OK, "", message, time.monotonic() - began)

    def _record(self, method: str, request: Any, result: RpcResult[M]) -> None:
        answer = result.status if result.message is None else to_json(result.message)
        self._recorder.add(Exchange(_short_name(method), request, answer, result.seconds))


class Stream(Generic[M]):
    """A server stream. Iterate over it; `code` is the status after the iteration has ended."""

    def __init__(self, call: Any, method: str, recorder: Recorder) -> None:
        self._call = call
        self._method = _short_name(method)
        self._recorder = recorder
        self.code: grpc.StatusCode | None = None

    def __iter__(self) -> Iterator[M]:
        began = time.monotonic()
        try:
            for message in self._call:
                self._recorder.add(Exchange(self._method, {}, to_json(message), time.monotonic() - began))
                yield message
        except grpc.RpcError as error:
            self.code = error.code()
            status = f"{error.code().name}: {error.details()}"
            self._recorder.add(Exchange(self._method, {}, status, time.monotonic() - began))
        else:
            self.code = grpc.StatusCode.OK

    def cancel(self) -> None:
        """End the stream."""
        self._call.cancel()


@dataclass(frozen=True)
class ClaimResponse:
    """The entry for one claim in the answer to a prepare or unprepare call: an error, or the prepared devices."""

    error: str
    devices: tuple[PreparedDevice, ...] = ()

    @property
    def cdi_ids(self) -> tuple[str, ...]:
        """The CDI IDs of all devices."""
        return tuple(cdi_id for device in self.devices for cdi_id in device.cdi_ids)

    def equivalent(self, other: ClaimResponse) -> bool:
        """Whether a pod gets the same from both; the order of the devices does not matter."""
        return _comparable(self) == _comparable(other)


@dataclass(frozen=True)
class ClaimsResponse:
    """The answer to a prepare or unprepare call.

    method: NodePrepareResources or NodeUnprepareResources.
    status: gRPC status, such as `OK` or `INTERNAL: no disk`.
    ok: whether the status is OK.
    claims: the entries by claim UID.
    seconds: duration of the call.
    """

    method: str
    status: str
    ok: bool
    claims: dict[str, ClaimResponse]
    seconds: float

    def problem(self, refs: Sequence[ClaimRef]) -> str:
        """Why the kubelet would not accept this answer for the claims `refs`; empty if it would."""
        if not self.ok:
            return f"{self.method} failed as a whole: {self.status}"
        asked = {ref.uid: ref for ref in refs}
        if unknown := [uid for uid in self.claims if uid not in asked]:
            return f"{self.method} has an entry for the claim UID {unknown[0]!r}, which was not requested"
        for uid, ref in asked.items():
            if uid not in self.claims:
                return f"{self.method} has no entry for claim {claim_name(ref)} (UID {uid})"
            if error := self.claims[uid].error:
                return f"{self.method} failed for claim {claim_name(ref)}: {error}"
        return ""

    def refuses(self, ref: ClaimRef) -> bool:
        """Whether the kubelet learns that this claim was not prepared."""
        entry = self.claims.get(ref.uid)
        return not self.ok or (entry is not None and bool(entry.error))

    def encoded(self) -> dict[str, Any]:
        """The entries as JSON, for evidence."""
        return {
            uid: {"error": entry.error, "devices": [f"{each.pool}/{each.device}" for each in entry.devices]}
            for uid, entry in self.claims.items()
        }


class PluginClient:
    """Calls a driver's DRA and health services over one connection."""

    def __init__(self, channel: Channel, driver: str, timing: KubeletTiming) -> None:
        self.channel = channel
        self._driver = driver
        self._timing = timing

    def prepare(self, refs: Sequence[ClaimRef], version: str = V1, timeout: float | None = None) -> ClaimsResponse:
        """NodePrepareResources, with the kubelet's deadline unless another one is given."""
        return self._call(PREPARE, refs, version, timeout)

    def unprepare(self, refs: Sequence[ClaimRef], version: str = V1, timeout: float | None = None) -> ClaimsResponse:
        """NodeUnprepareResources, with the kubelet's deadline unless another one is given."""
        return self._call(UNPREPARE, refs, version, timeout)

    def watch_health(self, version: str, timeout: float) -> Stream[Any]:
        """NodeWatchResources of `version`."""
        wire = HEALTH_VERSIONS[version]
        request = wire.NodeWatchResourcesRequest()
        return self.channel.stream(f"/{version}/NodeWatchResources", request, wire.NodeWatchResourcesResponse, timeout)

    def _call(self, method: str, refs: Sequence[ClaimRef], version: str, timeout: float | None) -> ClaimsResponse:
        wire = PLUGIN_VERSIONS[version]
        sent = [wire.Claim(namespace=ref.namespace, uid=ref.uid, name=ref.name) for ref in refs]
        request = getattr(wire, f"{method}Request")(claims=sent)
        response = getattr(wire, f"{method}Response")
        seconds = self._timing.call if timeout is None else timeout
        result: RpcResult[Any] = self.channel.call(method_path(version, method), request, response, seconds)
        claims = {} if result.message is None else self._claims(result.message)
        return ClaimsResponse(method, result.status, result.ok, claims, result.seconds)

    def _claims(self, message: Any) -> dict[str, ClaimResponse]:
        found = {}
        for uid, entry in message.claims.items():
            devices = getattr(entry, "devices", ())  # an unprepare answer has none
            found[uid] = ClaimResponse(entry.error, tuple(prepared_device(self._driver, each) for each in devices))
        return found


class RegistrationClient:
    """Calls a driver's registration service."""

    def __init__(self, channel: Channel, timing: KubeletTiming) -> None:
        self.channel = channel
        self._timing = timing

    def get_info(self, timeout: float | None = None) -> RpcResult[pluginregistration_v1_pb2.PluginInfo]:
        """GetInfo, with the kubelet's deadline unless another one is given."""
        seconds = self._timing.get_info if timeout is None else timeout
        request, response = pluginregistration_v1_pb2.InfoRequest(), pluginregistration_v1_pb2.PluginInfo
        return self.channel.call(f"{_REGISTRATION}GetInfo", request, response, seconds)

    def notify(self, error: str = "") -> RpcResult[pluginregistration_v1_pb2.RegistrationStatusResponse]:
        """NotifyRegistrationStatus: registered, or not registered because of `error`."""
        status = pluginregistration_v1_pb2.RegistrationStatus(plugin_registered=not error, error=error)
        response = pluginregistration_v1_pb2.RegistrationStatusResponse
        return self.channel.call(f"{_REGISTRATION}NotifyRegistrationStatus", status, response, self._timing.notify)


def method_path(version: str, method: str) -> str:
    """The gRPC path of a method of an advertised version."""
    return f"{_PACKAGE}{version}/{method}"


def to_json(message: Message) -> Any:
    """A message as JSON, with the field names of its .proto file."""
    return MessageToDict(message, preserving_proto_field_name=True)


def _comparable(response: ClaimResponse) -> list[tuple[object, ...]]:
    return sorted(
        (each.pool, each.device, sorted(each.requests), sorted(each.cdi_ids), each.share_id or "")
        for each in response.devices
    )


def _short_name(method: str) -> str:
    return method.rpartition("/")[2]


def _serialized(message: Message) -> bytes:
    return message.SerializeToString()
