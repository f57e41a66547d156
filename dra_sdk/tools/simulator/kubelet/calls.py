"""The kubelet's gRPC calls to a driver, and the answers as the kubelet reads them.

No call raises: every outcome is a result. Source: Kubernetes 1.36 pkg/kubelet/cm/dra/manager.go and
pkg/kubelet/pluginmanager/operationexecutor.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import grpc
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.kubelet.draplugin import VERSIONS
from dra_sdk.node.kubelet.health import HEALTH_VERSIONS
from dra_sdk.tools.simulator.kubelet.records import AnsweredDevice, claim_name
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.wire.proto.pluginregistration_v1_pb2 import (
    InfoRequest,
    PluginInfo,
    RegistrationStatus,
    RegistrationStatusResponse,
)

M = TypeVar("M", bound=Message)
PLUGIN_TYPE: Final = "DRAPlugin"
V1, V1BETA1 = VERSIONS
_, HEALTH_V1ALPHA1 = HEALTH_VERSIONS
PREPARE: Final = "NodePrepareResources"
UNPREPARE: Final = "NodeUnprepareResources"
_REGISTRATION: Final = "/pluginregistration.Registration"
_MAX_MESSAGE: Final = 4 * 1024 * 1024  # the kubelet has the default of grpc-go, from 1.34 to 1.37
_SUBSCRIBING = threading.Lock()
_END_SECONDS = 2.0  # ten times as long as grpc needs to notice that nothing is subscribed
_SHOWN_BYTES: Final = 200


@dataclass(frozen=True)
class Exchange:
    """One gRPC call, as evidence.

    method: short name, such as `NodePrepareResources`.
    request: the request as JSON.
    answer: the response as JSON, or the status of a failed call.
    seconds: duration of the call.
    """

    method: str
    request: Any
    answer: Any
    seconds: float

    def encoded(self) -> dict[str, Any]:
        """Return it as JSON, for a report."""
        return {"request": self.request, "answer": self.answer, "seconds": round(self.seconds, 4)}


Record = Callable[[Exchange], None]


@dataclass(frozen=True)
class CallResult:
    """How a call ended.

    code: gRPC status code; CANCELLED if the connection was closed on this side.
    details: the status message; empty for OK.
    seconds: duration of the call.
    """

    code: grpc.StatusCode
    details: str
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether the status is OK."""
        return self.code is grpc.StatusCode.OK

    @property
    def status(self) -> str:
        """Code and details on one line."""
        return "OK" if self.ok else f"{self.code.name}: {self.details}"


@dataclass(frozen=True)
class RpcResult(CallResult, Generic[M]):
    """The outcome of one unary call; `message` is the response, None unless the code is OK."""

    message: M | None


class ClaimResponse(NamedTuple):
    """The entry for one claim in the answer to a prepare or unprepare call: an error, or the prepared devices."""

    error: str
    devices: tuple[AnsweredDevice, ...] = ()

    @property
    def cdi_ids(self) -> tuple[str, ...]:
        """The CDI IDs of all devices."""
        return tuple(cdi_id for device in self.devices for cdi_id in device.cdi_ids)

    def equivalent(self, other: ClaimResponse) -> bool:
        """Return whether a pod gets the same from both; the order of the devices does not matter."""
        return _comparable(self) == _comparable(other)


@dataclass(frozen=True)
class ClaimsResponse(CallResult):
    """The answer to a prepare or unprepare call.

    method: NodePrepareResources or NodeUnprepareResources.
    claims: the entries by claim UID.
    """

    method: str
    claims: dict[str, ClaimResponse]

    def problem(self, refs: Sequence[ClaimRef]) -> str:
        """Return why the kubelet would not accept this answer for the claims `refs`; empty if it would."""
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
        """Return whether the kubelet learns that this claim was not prepared."""
        entry = self.claims.get(ref.uid)
        return not self.ok or (entry is not None and bool(entry.error))

    def encoded(self) -> dict[str, Any]:
        """Return the entries as JSON, for evidence."""
        return {
            uid: {"error": entry.error, "devices": [f"{device.pool}/{device.device}" for device in entry.devices]}
            for uid, entry in self.claims.items()
        }


class Stream(Generic[M]):
    """A server stream. Iterate over it; `result` is how it ended after that."""

    def __init__(self, call: Any, method: str, record: Record | None) -> None:
        self._call, self._method, self._record = call, method, record
        self.result: CallResult | None = None

    def __iter__(self) -> Iterator[M]:
        began = time.monotonic()
        try:
            for message in self._call:
                self._recorded(message, time.monotonic() - began)
                yield message
        except grpc.RpcError as error:
            self.result = CallResult(error.code(), error.details() or "", time.monotonic() - began)
            self._recorded(self.result.status, self.result.seconds)
        else:
            self.result = CallResult(grpc.StatusCode.OK, "", time.monotonic() - began)

    def cancel(self) -> None:
        """End the stream."""
        self._call.cancel()

    def _recorded(self, answer: Any, seconds: float) -> None:
        if self._record is not None:
            self._record(Exchange(self._method, {}, answer if isinstance(answer, str) else to_json(answer), seconds))


class KubeletCalls:
    """The calls over one connection to a unix socket. The first call or subscription connects, and so does each loss.

    socket: the socket for registration, or that of the DRA and health services.
    timing: the deadlines of calls for which no other one is given.
    driver: the driver's name, for the devices that it prepares.
    record: called with every exchange; None: none is put into words.
    """

    def __init__(
        self, socket: Path | str, timing: KubeletTiming, driver: str = "", record: Record | None = None
    ) -> None:
        self.channel = _channel(socket, timing)
        self._timing, self._driver, self._record = timing, driver, record

    def close(self) -> None:
        """Close the connection; cancels calls in progress."""
        self.channel.close()

    # -- registration

    def get_info(self, timeout: float | None = None) -> RpcResult[PluginInfo]:
        """Call GetInfo."""
        seconds = self._timing.get_info if timeout is None else timeout
        return self.call(f"{_REGISTRATION}/GetInfo", InfoRequest(), PluginInfo, seconds)

    def notify(self, error: str = "") -> RpcResult[RegistrationStatusResponse]:
        """Call NotifyRegistrationStatus: registered, or not registered because of `error`."""
        status = RegistrationStatus(plugin_registered=not error, error=error)
        path = f"{_REGISTRATION}/NotifyRegistrationStatus"
        return self.call(path, status, RegistrationStatusResponse, self._timing.notify)

    # -- claims and health

    def prepare(self, refs: Sequence[ClaimRef], version: str = V1, timeout: float | None = None) -> ClaimsResponse:
        """Call NodePrepareResources in an advertised version."""
        return self._claims_call(PREPARE, refs, version, timeout)

    def unprepare(self, refs: Sequence[ClaimRef], version: str = V1, timeout: float | None = None) -> ClaimsResponse:
        """Call NodeUnprepareResources in an advertised version."""
        return self._claims_call(UNPREPARE, refs, version, timeout)

    def watch_health(self, version: str, timeout: float | None = None) -> Stream[Any]:
        """Call NodeWatchResources in an advertised version; the stream ends after `timeout` seconds, if it is given."""
        service, wire = HEALTH_VERSIONS[version]
        request, response = wire.NodeWatchResourcesRequest(), wire.NodeWatchResourcesResponse
        return self.stream(f"/{service}/NodeWatchResources", request, response, timeout)

    # -- any call; `method` is a full path such as `/pluginregistration.Registration/GetInfo`

    def call(self, method: str, request: Message | bytes, response: type[M], timeout: float) -> RpcResult[M]:
        """Make a unary call; a request in bytes is sent as it is."""
        data = request if isinstance(request, bytes) else request.SerializeToString()
        result = self._call(method, data, response, timeout)
        if self._record is not None:
            sent = {"bytes": data[:_SHOWN_BYTES].hex()} if isinstance(request, bytes) else to_json(request)
            answer = result.status if result.message is None else to_json(result.message)
            self._record(Exchange(_short_name(method), sent, answer, result.seconds))
        return result

    def stream(self, method: str, request: Message, response: type[M], timeout: float | None) -> Stream[M]:
        """Open a server stream."""
        call = self.channel.unary_stream(
            method, request_serializer=type(request).SerializeToString, response_deserializer=response.FromString
        )
        return Stream(call(request, timeout=timeout), _short_name(method), self._record)

    def _call(self, method: str, request: bytes, response: type[M], timeout: float) -> RpcResult[M]:
        call: Any = self.channel.unary_unary(method, response_deserializer=response.FromString)
        began = time.monotonic()
        try:
            message = call(request, timeout=timeout)
        except grpc.RpcError as error:
            return RpcResult(error.code(), error.details() or "", time.monotonic() - began, None)
        except ValueError as error:  # a call on a closed channel
            return RpcResult(grpc.StatusCode.CANCELLED, str(error), time.monotonic() - began, None)
        return RpcResult(grpc.StatusCode.OK, "", time.monotonic() - began, message)

    def _claims_call(
        self, method: str, refs: Sequence[ClaimRef], version: str, timeout: float | None
    ) -> ClaimsResponse:
        _, wire = VERSIONS[version]
        claims = [wire.Claim(namespace=ref.namespace, uid=ref.uid, name=ref.name) for ref in refs]
        request, response = getattr(wire, f"{method}Request")(claims=claims), getattr(wire, f"{method}Response")
        seconds = self._timing.call if timeout is None else timeout
        result: RpcResult[Any] = self.call(method_path(version, method), request, response, seconds)
        entries = {} if result.message is None else self._entries(result.message)
        return ClaimsResponse(result.code, result.details, result.seconds, method, entries)

    def _entries(self, message: Any) -> dict[str, ClaimResponse]:
        return {
            uid: ClaimResponse(
                entry.error,  # an unprepare answer has no devices
                tuple(_prepared_device(self._driver, device) for device in getattr(entry, "devices", ())),
            )
            for uid, entry in message.claims.items()
        }


class Connectivity:
    """Observes whether a channel is connected, until `stop`, which must come before the channel is closed.

    `observe` is called after each change, by a thread of grpc. Another thread of grpc polls the state: it fails if the
    channel is closed in the meantime, and ends soon after the last subscription. `stop` waits for its end.
    """

    def __init__(self, channel: grpc.Channel, observe: Callable[[bool], None]) -> None:
        self._channel = channel
        self._observe = observe
        with _SUBSCRIBING:
            before = set(threading.enumerate())
            channel.subscribe(self._changed, try_to_connect=True)
            others = [thread for thread in threading.enumerate() if thread not in before]
        # One that another part of the process is about to start is listed, too; it is not alive yet, and not grpc's.
        self._pollers = [thread for thread in others if thread.daemon and thread.is_alive()]

    def stop(self) -> None:
        """End the observation."""
        self._channel.unsubscribe(self._changed)
        for poller in self._pollers:
            poller.join(_END_SECONDS)

    def _changed(self, state: grpc.ChannelConnectivity) -> None:
        self._observe(state is grpc.ChannelConnectivity.READY)


def method_path(version: str, method: str) -> str:
    """Return the gRPC path of a method of an advertised version, whose name is not that of the service."""
    return f"/{VERSIONS[version][0]}/{method}"


def to_json(message: Message) -> Any:
    """Return a message as JSON, with the field names of its .proto file."""
    return MessageToDict(message, preserving_proto_field_name=True)


def _channel(socket: Path | str, timing: KubeletTiming) -> grpc.Channel:
    options = [
        # The default policy, pick_first, would connect again with the next call only.
        ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
        # Channels to the same path would otherwise share connection and back-off, even after a restart.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.max_receive_message_length", _MAX_MESSAGE),
        ("grpc.initial_reconnect_backoff_ms", int(timing.reconnect_first * 1000)),
        ("grpc.min_reconnect_backoff_ms", int(timing.reconnect_first * 1000)),
        ("grpc.max_reconnect_backoff_ms", int(timing.reconnect_last * 1000)),
    ]
    return grpc.insecure_channel(f"unix:{socket}", options=options)


def _prepared_device(driver: str, device: Any) -> AnsweredDevice:
    """Return a device of a prepare answer, from the message Device of v1 or of v1beta1, which has no share_id."""
    has_share_id = "share_id" in device.DESCRIPTOR.fields_by_name and device.HasField("share_id")
    return AnsweredDevice(
        driver,
        device.pool_name,
        device.device_name,
        tuple(device.request_names),
        tuple(device.cdi_device_ids),
        device.share_id if has_share_id else None,
    )


def _comparable(response: ClaimResponse) -> list[tuple[object, ...]]:
    return sorted(
        (device.pool, device.device, sorted(device.requests), sorted(device.cdi_ids), device.share_id or "")
        for device in response.devices
    )


def _short_name(method: str) -> str:
    return method.rpartition("/")[2]
