"""The events of NRI, the calls that carry them, and which container runtime knows which.

Source: containerd/nri pkg/api/api.proto of 0.3 to 0.12; versions of NRI in releases of containerd and CRI-O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message

from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

PLUGIN: Final = "nri.pkg.api.v1alpha1.Plugin"
"""The service of the plugin."""
RUNTIME: Final = "nri.pkg.api.v1alpha1.Runtime"
"""The service of the container runtime."""

Version = tuple[int, ...]
"""A version of NRI, such as (0, 12, 1)."""
OLDEST: Final[Version] = (0, 3)
SPLIT_SYNCHRONIZE: Final[Version] = (0, 8)
POD_UPDATES: Final[Version] = (0, 10)
CALL_FOR_EACH_EVENT: Final[Version] = (0, 12)
SAFE_UPDATES: Final[Version] = (0, 12, 1)
"""The first version whose runtimes do not deadlock if a plugin updates containers while an event is under way."""


class Event(IntEnum):
    """What a plugin can subscribe to; the numbers are those of NRI."""

    RUN_POD_SANDBOX = 1
    STOP_POD_SANDBOX = 2
    REMOVE_POD_SANDBOX = 3
    CREATE_CONTAINER = 4
    POST_CREATE_CONTAINER = 5
    START_CONTAINER = 6
    POST_START_CONTAINER = 7
    UPDATE_CONTAINER = 8
    POST_UPDATE_CONTAINER = 9
    STOP_CONTAINER = 10
    REMOVE_CONTAINER = 11
    UPDATE_POD_SANDBOX = 12
    POST_UPDATE_POD_SANDBOX = 13
    VALIDATE_CONTAINER_ADJUSTMENT = 14

    @property
    def since(self) -> Version:
        """The first version of NRI that has this event."""
        return POD_UPDATES if self >= Event.UPDATE_POD_SANDBOX else OLDEST

    @cached_property
    def call(self) -> EventCall:
        """The call that carries it."""
        return _CALLS[self]


class EventCall(NamedTuple):
    """The call that carries an event.

    method: of the service Plugin.
    request: the class of its request.
    response: the class of its response.
    own: the first version of NRI with this method; before, StateChange carries the event.
    """

    method: str
    request: type[Message]
    response: type[Message]
    own: Version = CALL_FOR_EACH_EVENT


_CALLS: Final[dict[Event, EventCall]] = {
    Event.RUN_POD_SANDBOX: EventCall("RunPodSandbox", pb.PodSandboxEvent, pb.Empty),
    Event.STOP_POD_SANDBOX: EventCall("StopPodSandbox", pb.PodSandboxEvent, pb.Empty),
    Event.REMOVE_POD_SANDBOX: EventCall("RemovePodSandbox", pb.PodSandboxEvent, pb.Empty),
    Event.CREATE_CONTAINER: EventCall("CreateContainer", pb.CreateContainerRequest, pb.CreateContainerResponse, OLDEST),
    Event.POST_CREATE_CONTAINER: EventCall("PostCreateContainer", pb.ContainerEvent, pb.Empty),
    Event.START_CONTAINER: EventCall("StartContainer", pb.ContainerEvent, pb.Empty),
    Event.POST_START_CONTAINER: EventCall("PostStartContainer", pb.ContainerEvent, pb.Empty),
    Event.UPDATE_CONTAINER: EventCall("UpdateContainer", pb.UpdateContainerRequest, pb.UpdateContainerResponse, OLDEST),
    Event.POST_UPDATE_CONTAINER: EventCall("PostUpdateContainer", pb.ContainerEvent, pb.Empty),
    Event.STOP_CONTAINER: EventCall("StopContainer", pb.StopContainerRequest, pb.StopContainerResponse, OLDEST),
    Event.REMOVE_CONTAINER: EventCall("RemoveContainer", pb.ContainerEvent, pb.Empty),
    Event.UPDATE_POD_SANDBOX: EventCall("UpdatePodSandbox", pb.UpdatePodSandboxRequest, pb.Empty, POD_UPDATES),
    Event.POST_UPDATE_POD_SANDBOX: EventCall("PostUpdatePodSandbox", pb.PodSandboxEvent, pb.Empty),
    Event.VALIDATE_CONTAINER_ADJUSTMENT: EventCall(
        "ValidateContainerAdjustment",
        pb.ValidateContainerAdjustmentRequest,
        pb.ValidateContainerAdjustmentResponse,
        POD_UPDATES,
    ),
}
BY_METHOD: Final = {call.method: event for event, call in _CALLS.items()}
"""Events by the method that carries them."""


def mask(events: Iterable[Event]) -> int:
    """Return the number that a plugin answers to Configure: bit n-1 for event n."""
    return sum(1 << (event - 1) for event in set(events))


def subscribed(number: int) -> frozenset[Event]:
    """Return the events of a mask; bits that no event has are ignored."""
    return frozenset(event for event in Event if number & (1 << (event - 1)))


def from_state_change(message: pb.StateChangeEvent) -> tuple[Event, Any] | None:
    """Return the event of a StateChange, with the request of its own call; None if the event is not known."""
    if message.event not in {event.value for event in Event}:
        return None
    event = Event(message.event)
    request: Any = event.call.request()
    request.pod.CopyFrom(message.pod)
    if isinstance(request, pb.ContainerEvent):
        request.container.CopyFrom(message.container)
    return event, request


_NRI_VERSIONS: Final[dict[str, list[tuple[Version, Version]]]] = {
    "containerd": [((2, 3), (0, 12)), ((2, 2), (0, 10)), ((2, 0), (0, 8)), ((1, 7), OLDEST)],
    "cri-o": [((1, 36), (0, 12)), ((1, 34), (0, 10)), ((1, 32), (0, 9)), ((1, 30), (0, 6))],
}
"""For each runtime: its version, and the version of NRI that it has from there on, newest first."""


@dataclass(frozen=True)
class RuntimeInfo:
    """The container runtime, as it presents itself in Configure.

    name: such as `containerd`.
    version: its version.
    nri_version: the version of NRI that it states; empty before 0.12.
    request_timeout: seconds that it waits for an answer.
    """

    name: str
    version: str
    nri_version: str
    request_timeout: float

    @property
    def nri(self) -> Version:
        """The version of NRI: the one stated, else the one of the runtime's release, else the oldest."""
        if stated := _version(self.nri_version):
            return stated
        own = _version(self.version)
        for since, nri in _NRI_VERSIONS.get(self.name.lower(), []):
            if own >= since:
                return nri
        return OLDEST

    def knows(self, event: Event) -> bool:
        """Return whether the runtime has this event; a subscription to an unknown one makes it refuse the plugin."""
        return self.nri >= event.since

    def __str__(self) -> str:
        nri = ".".join(map(str, self.nri))
        return f"{self.name or 'container runtime'} {self.version}".strip() + f" (NRI {nri})"


def _version(text: str) -> Version:
    """Return the numbers at the beginning of a version, after an optional `v`; empty if there are none."""
    version = re.match(r"v?(\d+(?:\.\d+)*)", text)
    return tuple(map(int, version[1].split("."))) if version else ()
