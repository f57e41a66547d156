"""The kubelet's calls to a driver, and what the kubelet would make of the answers.

Source: Kubernetes 1.36 pkg/kubelet/cm/dra/manager.go and pkg/kubelet/pluginmanager/operationexecutor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from dra_sdk.tools.conformance.rpc import Answer, Channel, Stream
from dra_sdk.tools.simulator.kubelet.records import ClaimRef, PreparedDevice, claim_name
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.wire.proto import (
    dra_health_v1_pb2,
    dra_health_v1alpha1_pb2,
    dra_v1_pb2,
    dra_v1beta1_pb2,
    pluginregistration_v1_pb2,
)

V1: Final = "v1.DRAPlugin"
V1BETA1: Final = "v1beta1.DRAPlugin"
PLUGIN_VERSIONS: Final[dict[str, ModuleType]] = {V1: dra_v1_pb2, V1BETA1: dra_v1beta1_pb2}
HEALTH_VERSIONS: Final[dict[str, ModuleType]] = {
    "v1.DRAResourceHealth": dra_health_v1_pb2,
    "v1alpha1.DRAResourceHealth": dra_health_v1alpha1_pb2,
}
TIMING: Final = KubeletTiming()
"""The kubelet's deadlines."""
_PREFIX = "/k8s.io.kubelet.pkg.apis.dra."
_REGISTRATION = "/pluginregistration.Registration/"

PREPARE: Final = "NodePrepareResources"
UNPREPARE: Final = "NodeUnprepareResources"


@dataclass(frozen=True)
class Entry:
    """A claim's entry in an answer: an error, or devices."""

    error: str
    devices: tuple[PreparedDevice, ...] = ()

    @property
    def cdi_ids(self) -> tuple[str, ...]:
        """The CDI ids of all devices."""
        return tuple(cdi_id for device in self.devices for cdi_id in device.cdi_ids)


@dataclass(frozen=True)
class ClaimsAnswer:
    """The answer to a prepare or unprepare: how the call went, and the entries by claim UID."""

    method: str
    status: str
    ok: bool
    entries: dict[str, Entry]
    seconds: float

    def problem(self, claims: Sequence[ClaimRef]) -> str:
        """Why the kubelet would not take this for an answer to `claims`; empty where it would."""
        if not self.ok:
            return f"{self.method} failed as a whole: {self.status}"
        asked = {claim.uid: claim for claim in claims}
        if strangers := [uid for uid in self.entries if uid not in asked]:
            return f"{self.method} has an entry for the claim UID {strangers[0]!r}, which was not asked for"
        for uid, claim in asked.items():
            if uid not in self.entries:
                return f"{self.method} has no entry for claim {claim_name(claim)} (UID {uid})"
            if error := self.entries[uid].error:
                return f"{self.method} failed for claim {claim_name(claim)}: {error}"
        return ""

    def refuses(self, claim: ClaimRef) -> bool:
        """Whether the kubelet learns that this claim was not prepared."""
        entry = self.entries.get(claim.uid)
        return not self.ok or (entry is not None and bool(entry.error))


class PluginClient:
    """A driver's service as the kubelet calls it, over one connection."""

    def __init__(self, channel: Channel, driver: str) -> None:
        self.channel = channel
        self._driver = driver

    def prepare(self, claims: Sequence[ClaimRef], version: str = V1, timeout: float = TIMING.call) -> ClaimsAnswer:
        """NodePrepareResources."""
        return self._call(PREPARE, claims, version, timeout)

    def unprepare(self, claims: Sequence[ClaimRef], version: str = V1, timeout: float = TIMING.call) -> ClaimsAnswer:
        """NodeUnprepareResources."""
        return self._call(UNPREPARE, claims, version, timeout)

    def watch_health(self, version: str, timeout: float) -> Stream[Any]:
        """NodeWatchResources of `version`."""
        wire = HEALTH_VERSIONS[version]
        request = wire.NodeWatchResourcesRequest()
        return self.channel.stream(f"/{version}/NodeWatchResources", request, wire.NodeWatchResourcesResponse, timeout)

    def _call(self, method: str, claims: Sequence[ClaimRef], version: str, timeout: float) -> ClaimsAnswer:
        wire = PLUGIN_VERSIONS[version]
        sent = [wire.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name) for claim in claims]
        request = getattr(wire, f"{method}Request")(claims=sent)
        answer: Answer[Any] = self.channel.call(
            method_path(version, method), request, getattr(wire, f"{method}Response"), timeout
        )
        entries = {} if answer.message is None else self._entries(answer.message)
        return ClaimsAnswer(method, answer.status, answer.ok, entries, answer.seconds)

    def _entries(self, message: Any) -> dict[str, Entry]:
        return {
            uid: Entry(entry.error, tuple(_device(self._driver, each) for each in getattr(entry, "devices", ())))
            for uid, entry in message.claims.items()
        }


class RegistrationClient:
    """A driver's registration service as the kubelet calls it."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel

    def get_info(self, timeout: float | None = None) -> Answer[pluginregistration_v1_pb2.PluginInfo]:
        """GetInfo, within the kubelet's deadline unless another is given."""
        request, seconds = pluginregistration_v1_pb2.InfoRequest(), timeout or TIMING.get_info
        return self.channel.call(f"{_REGISTRATION}GetInfo", request, pluginregistration_v1_pb2.PluginInfo, seconds)

    def notify(self, error: str = "") -> Answer[pluginregistration_v1_pb2.RegistrationStatusResponse]:
        """NotifyRegistrationStatus: registered where `error` is empty."""
        status = pluginregistration_v1_pb2.RegistrationStatus(plugin_registered=not error, error=error)
        response = pluginregistration_v1_pb2.RegistrationStatusResponse
        return self.channel.call(f"{_REGISTRATION}NotifyRegistrationStatus", status, response, TIMING.notify)


def method_path(version: str, method: str) -> str:
    """The name on the wire of a method of an advertised version."""
    return f"{_PREFIX}{version}/{method}"


def _device(driver: str, device: Any) -> PreparedDevice:
    # v1beta1 has no share_id.
    shared = "share_id" in device.DESCRIPTOR.fields_by_name and device.HasField("share_id")
    return PreparedDevice(
        driver,
        device.pool_name,
        device.device_name,
        tuple(device.request_names),
        tuple(device.cdi_device_ids),
        device.share_id if shared else None,
    )
