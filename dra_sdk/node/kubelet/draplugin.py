"""The DRAPlugin service, v1 and v1beta1: exactly one answer for each claim that the kubelet names.

Source: k8s.io/kubelet pkg/apis/dra. One bad claim never fails the others: its error is in its own entry of the answer.
A call that was cancelled or whose deadline has passed starts no further work: the kubelet sends a new call, and what
the old one does after that would never be undone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import grpc

from dra_sdk.errors import ClaimError, DraError, HookError, one_line
from dra_sdk.model.claim import ClaimRef, Deadline, HeldDevice
from dra_sdk.node.logs import LogFields
from dra_sdk.rpc.client import call
from dra_sdk.rpc.server import Method, unary
from dra_sdk.wire.proto import dra_v1_pb2, dra_v1beta1_pb2

log = logging.getLogger(__name__)
Prepare = Callable[[ClaimRef, Deadline], Sequence[HeldDevice]]
Unprepare = Callable[[ClaimRef, Deadline], None]
CallObserver = Callable[[str, Mapping[str, str]], AbstractContextManager[object]]
"""Called with a method's name and the headers of the call; what it returns is entered during the call."""
_Act = Callable[[ClaimRef, Deadline], Any]
_Answer = Callable[[Any, grpc.ServicerContext], Any]
ERROR_LIMIT: Final = 4096  # characters: hundreds in the 4 MiB that the kubelet accepts; an event shows the beginning
NAME_LIMIT: Final = 253  # characters of an object's name, namespace or UID
PROBE_SECONDS: Final = 1.0
_requests = count(1)

#: Advertised name → wire name of the service and its messages; the kubelet uses the first that it knows; newest first.
VERSIONS: dict[str, tuple[str, ModuleType]] = {
    "v1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", dra_v1_pb2),
    "v1beta1.DRAPlugin": ("k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin", dra_v1beta1_pb2),
}


def plugin_services(
    prepare: Prepare, unprepare: Unprepare, observe: CallObserver | None = None
) -> dict[str, dict[str, Method]]:
    """Return the handlers of every version, by wire name of the service."""
    return {name: _PluginVersion(wire, prepare, unprepare, observe).methods() for name, wire in VERSIONS.values()}


def probe(socket: Path) -> None:
    """Call our own service socket with a prepare call without claims. DraError if it does not answer."""
    method = f"/{VERSIONS['v1.DRAPlugin'][0]}/NodePrepareResources"
    request, response = dra_v1_pb2.NodePrepareResourcesRequest(), dra_v1_pb2.NodePrepareResourcesResponse
    call(socket, method, request, response, PROBE_SECONDS)


class _PluginVersion:
    """One version of the API over the same two functions."""

    def __init__(self, wire: Any, prepare: Prepare, unprepare: Unprepare, observe: CallObserver | None) -> None:
        self._wire = wire
        self._observe = observe
        self._prepare = prepare
        self._unprepare = unprepare

    def methods(self) -> dict[str, Method]:
        return {
            "NodePrepareResources": self._method("NodePrepareResources", "prepare", self._prepare),
            "NodeUnprepareResources": self._method("NodeUnprepareResources", "unprepare", self._unprepare),
        }

    def _method(self, name: str, action: str, act: _Act) -> Method:
        request, response = getattr(self._wire, f"{name}Request"), getattr(self._wire, f"{name}Response")
        answer = partial(self._answer_each_claim, action, act, response)
        return unary(_observed(name, answer, self._observe) if self._observe else answer, request, response)

    def _answer_each_claim(
        self, action: str, act: _Act, make_response: Any, request: Any, context: grpc.ServicerContext
    ) -> Any:
        """Return the response with an entry for each claim of the request: the devices of `act`, or its error."""
        claims, response = _claims(request), make_response()
        deadline = Deadline(context.time_remaining, context.is_active)
        for ref in claims:
            entry = response.claims[ref.uid]  # reading a message map creates the entry
            if deadline.is_over:
                entry.error = f"{action} {ref}: the kubelet no longer waits for this call"
                continue
            try:
                with LogFields(request=str(next(_requests)), claim=f"{ref.namespace}/{ref.name}", uid=ref.uid):
                    _check_length(ref)
                    devices = act(ref, deadline)
                    if act is self._prepare:
                        entry.devices.extend([self._device(device) for device in devices])
            except BaseException as error:  # noqa: BLE001 (each claim has its own error; without an answer the call would hang)
                entry.error = _report(action, ref, error)
        return response

    def _device(self, device: HeldDevice) -> Any:
        message = self._wire.Device(
            request_names=[device.base_request],
            pool_name=device.pool,
            device_name=device.name,
            cdi_device_ids=device.cdi_ids,
        )
        if device.share_id is not None and "share_id" in self._wire.Device.DESCRIPTOR.fields_by_name:
            message.share_id = device.share_id
        return message


def _observed(name: str, answer: _Answer, observe: CallObserver) -> _Answer:
    def observed(request: Any, context: grpc.ServicerContext) -> Any:
        with observe(name, _headers(context)):
            return answer(request, context)

    return observed


def _headers(context: grpc.ServicerContext) -> dict[str, str]:
    """Return the headers of a call that are text; names are in lower case (gRPC over HTTP/2, custom metadata)."""
    return {str(key): value for key, value in context.invocation_metadata() if isinstance(value, str)}


def _claims(request: Any) -> Iterable[ClaimRef]:
    """Return the claims of a request, each UID once: an answer has one entry for each UID."""
    return {claim.uid: ClaimRef(claim.namespace, claim.name, claim.uid) for claim in request.claims}.values()


def _check_length(ref: ClaimRef) -> None:
    for field, text in (("namespace", ref.namespace), ("name", ref.name), ("uid", ref.uid)):
        if len(text) > NAME_LIMIT:
            raise ClaimError(f"the claim's {field} must have at most {NAME_LIMIT} characters, has {len(text)}")


def _report(action: str, ref: ClaimRef, error: BaseException) -> str:
    """Log a failed call. Return one line for the pod's events, limited in length and without control characters."""
    expected = isinstance(error, DraError)
    code_is_wrong = not expected or isinstance(error, HookError)  # only then a traceback helps
    text = str(error) or type(error).__name__ if expected else f"internal error: {type(error).__name__}: {error}"
    line = one_line("; ".join([f"{ref}: {text}", *getattr(error, "__notes__", [])]), ERROR_LIMIT)
    log.error("cannot %s %s", action, line, exc_info=error if code_is_wrong else None)
    return f"{action} {line}"
