"""The DRAPlugin service, v1 and v1beta1: exactly one answer for each claim that the kubelet names.

Source: k8s.io/kubelet pkg/apis/dra. One bad claim never fails the others: whatever goes wrong with it is its own error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import count
from types import ModuleType
from typing import Any

import grpc

from dra_sdk.errors import DraError, HookError
from dra_sdk.node.kubelet.server import Method, unary
from dra_sdk.wire.context import Arrived, bound
from dra_sdk.wire.dra import AnsweredDevice, ClaimRef
from dra_sdk.wire.proto import dra_v1_pb2, dra_v1beta1_pb2

log = logging.getLogger(__name__)
_requests = count(1)
Prepare = Callable[[ClaimRef], Sequence[AnsweredDevice]]
Unprepare = Callable[[ClaimRef], None]
LONGEST = 4096  # characters of an error; the kubelet takes no answer above 16 MiB, and nobody reads more in an event

#: Advertised name → wire name of the service and its messages; the kubelet takes the first it knows, so newest first.
VERSIONS: dict[str, tuple[str, ModuleType]] = {
    "v1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", dra_v1_pb2),
    "v1beta1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", dra_v1beta1_pb2),
}


def plugin_services(prepare: Prepare, unprepare: Unprepare) -> dict[str, dict[str, Method]]:
    """The handlers of every version, by wire name of the service."""
    return {name: _Version(wire, prepare, unprepare).methods() for name, wire in VERSIONS.values()}


class _Version:
    """One version of the API over the same two functions."""

    def __init__(self, wire: Any, prepare: Prepare, unprepare: Unprepare) -> None:
        self._wire = wire
        self._prepare = prepare
        self._unprepare = unprepare

    def methods(self) -> dict[str, Method]:
        wire = self._wire
        return {
            "NodePrepareResources": unary(
                self._node_prepare, wire.NodePrepareResourcesRequest, wire.NodePrepareResourcesResponse
            ),
            "NodeUnprepareResources": unary(
                self._node_unprepare, wire.NodeUnprepareResourcesRequest, wire.NodeUnprepareResourcesResponse
            ),
        }

    def _node_prepare(self, request: Any, _context: grpc.ServicerContext) -> Any:
        response = self._wire.NodePrepareResourcesResponse()
        with Arrived():  # for all claims: the last one may have to wait for the others longer than the kubelet does
            for ref in _refs(request):
                entry = response.claims[ref.uid]  # reading a message map creates the entry
                try:
                    with _bound(ref):
                        entry.devices.extend([self._device(device) for device in self._prepare(ref)])
                except BaseException as error:  # noqa: BLE001 (this claim's error; unanswered, the call would hang)
                    entry.error = _report("prepare", ref, error)
        return response

    def _node_unprepare(self, request: Any, _context: grpc.ServicerContext) -> Any:
        response = self._wire.NodeUnprepareResourcesResponse()
        with Arrived():
            for ref in _refs(request):
                entry = response.claims[ref.uid]
                try:
                    with _bound(ref):
                        self._unprepare(ref)
                except BaseException as error:  # noqa: BLE001 (as above)
                    entry.error = _report("unprepare", ref, error)
        return response

    def _device(self, device: AnsweredDevice) -> Any:
        message = self._wire.Device(
            request_names=[device.request],
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=list(device.cdi_ids),
        )
        if device.share_id is not None and "share_id" in self._wire.Device.DESCRIPTOR.fields_by_name:
            message.share_id = device.share_id
        return message


def _refs(request: Any) -> Iterable[ClaimRef]:
    """The claims of a request, each UID once: an answer has room for one entry."""
    return {claim.uid: ClaimRef(claim.namespace, claim.name, claim.uid) for claim in request.claims}.values()


def _bound(ref: ClaimRef) -> AbstractContextManager[None]:
    """What log lines of this call carry, those of the driver's hooks as well."""
    return bound(request=str(next(_requests)), claim=f"{ref.namespace}/{ref.name}", uid=ref.uid)


def _report(action: str, ref: ClaimRef, error: BaseException) -> str:
    """Log a failed call and put it into one line for the pod's events, of a size and in characters that can be sent."""
    expected = isinstance(error, DraError)
    code_is_wrong = not expected or isinstance(error, HookError)  # only then does a traceback help
    text = str(error) or type(error).__name__ if expected else f"internal error: {type(error).__name__}: {error}"
    text = " ".join("; ".join([text, *getattr(error, "__notes__", [])]).split())
    text = text.encode(errors="backslashreplace").decode()  # a log file takes lone surrogates no more than gRPC does
    log.error("cannot %s %s: %s", action, ref, text, exc_info=error if code_is_wrong else None)
    line = f"{action} {ref}: {text}".encode(errors="backslashreplace").decode()
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}…"
