"""The kubelet's gRPC calls, typed, on top of the generated messages.

The names that a driver advertises (`v1.DRAPlugin`) are not the names of the gRPC services
(`k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin`).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from dra_sdk.tools.simulator.kubelet.records import ClaimRef, PreparedDevice
from dra_sdk.wire.proto import (
    dra_health_v1_pb2,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    pluginregistration_v1_pb2,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Protocol

    from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming

    class HealthStream(Protocol):
        """A health stream: iterate over it for reports, `cancel` it from another thread."""

        def __iter__(self) -> Iterator[dra_health_v1_pb2.NodeWatchResourcesResponse]: ...
        def cancel(self) -> bool:
            """Ends the stream."""


PLUGIN_TYPE = "DRAPlugin"
V1 = "v1.DRAPlugin"
V1BETA1 = "v1beta1.DRAPlugin"
PLUGIN_SERVICES = (V1, V1BETA1)
HEALTH_V1 = "v1.DRAResourceHealth"
HEALTH_V1ALPHA1 = "v1alpha1.DRAResourceHealth"

_SUBSCRIBING = threading.Lock()
_END_SECONDS = 2.0  # ten times as long as grpc needs to notice that nothing is subscribed
_MESSAGES = {V1: dra_v1_pb2, V1BETA1: dra_v1beta1_pb2}
_PREFIX = "/k8s.io.kubelet.pkg.apis.dra."


class ClaimAnswer(NamedTuple):
    """A driver's answer for one claim.

    error: "" for success.
    devices: of a prepare.
    """

    error: str
    devices: tuple[PreparedDevice, ...] = ()


Answers = dict[str, ClaimAnswer]
"""A driver's answer, by claim UID."""


def channel(socket: str, timing: KubeletTiming) -> grpc.Channel:
    """A channel to a unix socket. It connects with the first call or subscription, and at once after each loss."""
    options = [
        # The default policy, pick_first, would connect again with the next call only.
        ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
        # Channels to the same path would otherwise share connection and back-off, even after a restart.
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.initial_reconnect_backoff_ms", int(timing.reconnect_first * 1000)),
        ("grpc.min_reconnect_backoff_ms", int(timing.reconnect_first * 1000)),
        ("grpc.max_reconnect_backoff_ms", int(timing.reconnect_last * 1000)),
    ]
    return grpc.insecure_channel(f"unix:{socket}", options=options)


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
            others = [each for each in threading.enumerate() if each not in before]
        # One that another part of the process is about to start is listed, too; it is not alive yet, and not grpc's.
        self._pollers = [each for each in others if each.daemon and each.is_alive()]

    def stop(self) -> None:
        """Ends the observation."""
        self._channel.unsubscribe(self._changed)
        for poller in self._pollers:
            poller.join(_END_SECONDS)

    def _changed(self, state: grpc.ChannelConnectivity) -> None:
        self._observe(state is grpc.ChannelConnectivity.READY)


def failure(error: grpc.RpcError) -> tuple[grpc.StatusCode, str]:
    """The status of a failed call, and a text that names it."""
    code: grpc.StatusCode = error.code()
    return code, f"{code.name}: {error.details()}"


def get_info(channel: grpc.Channel, timeout: float) -> pluginregistration_v1_pb2.PluginInfo:
    """Registration.GetInfo."""
    call = channel.unary_unary(
        "/pluginregistration.Registration/GetInfo",
        request_serializer=pluginregistration_v1_pb2.InfoRequest.SerializeToString,
        response_deserializer=pluginregistration_v1_pb2.PluginInfo.FromString,
    )
    return call(pluginregistration_v1_pb2.InfoRequest(), timeout=timeout)


def notify(channel: grpc.Channel, error: str, timeout: float) -> None:
    """Registration.NotifyRegistrationStatus; `error` "" says that the driver is registered."""
    call = channel.unary_unary(
        "/pluginregistration.Registration/NotifyRegistrationStatus",
        request_serializer=pluginregistration_v1_pb2.RegistrationStatus.SerializeToString,
        response_deserializer=pluginregistration_v1_pb2.RegistrationStatusResponse.FromString,
    )
    status = pluginregistration_v1_pb2.RegistrationStatus(plugin_registered=not error, error=error)
    call(status, timeout=timeout)


def prepare(channel: grpc.Channel, service: str, driver: str, claims: Sequence[ClaimRef], timeout: float) -> Answers:
    """DRAPlugin.NodePrepareResources in the version `service`."""
    messages = _MESSAGES[service]
    call = channel.unary_unary(
        f"{_PREFIX}{service}/NodePrepareResources",
        request_serializer=messages.NodePrepareResourcesRequest.SerializeToString,
        response_deserializer=messages.NodePrepareResourcesResponse.FromString,
    )
    request = messages.NodePrepareResourcesRequest(claims=_claims(service, claims))
    response = call(request, timeout=timeout)
    return {
        uid: ClaimAnswer(answer.error, tuple(prepared_device(driver, device) for device in answer.devices))
        for uid, answer in response.claims.items()
    }


def unprepare(channel: grpc.Channel, service: str, claims: Sequence[ClaimRef], timeout: float) -> Answers:
    """DRAPlugin.NodeUnprepareResources in the version `service`."""
    messages = _MESSAGES[service]
    call = channel.unary_unary(
        f"{_PREFIX}{service}/NodeUnprepareResources",
        request_serializer=messages.NodeUnprepareResourcesRequest.SerializeToString,
        response_deserializer=messages.NodeUnprepareResourcesResponse.FromString,
    )
    request = messages.NodeUnprepareResourcesRequest(claims=_claims(service, claims))
    response = call(request, timeout=timeout)
    return {uid: ClaimAnswer(answer.error) for uid, answer in response.claims.items()}


def watch_health(channel: grpc.Channel, service: str) -> HealthStream:
    """DRAResourceHealth.NodeWatchResources; both versions have the same messages."""
    request = (
        dra_health_v1_pb2.NodeWatchResourcesRequest()
        if service == HEALTH_V1
        else dra_health_v1alpha1_pb2.NodeWatchResourcesRequest()
    )
    call = channel.unary_stream(
        f"/{service}/NodeWatchResources",
        request_serializer=type(request).SerializeToString,
        response_deserializer=dra_health_v1_pb2.NodeWatchResourcesResponse.FromString,
    )
    stream: HealthStream = call(request)
    return stream


def _claims(service: str, claims: Sequence[ClaimRef]) -> list[dra_v1_pb2.Claim]:
    message = _MESSAGES[service].Claim
    return [message(namespace=claim.namespace, uid=claim.uid, name=claim.name) for claim in claims]


def prepared_device(driver: str, device: Any) -> PreparedDevice:
    """A device of a prepare answer, from the message Device of v1 or of v1beta1, which has no share_id."""
    has_share_id = "share_id" in device.DESCRIPTOR.fields_by_name and device.HasField("share_id")
    return PreparedDevice(
        driver,
        device.pool_name,
        device.device_name,
        tuple(device.request_names),
        tuple(device.cdi_device_ids),
        device.share_id if has_share_id else None,
    )
