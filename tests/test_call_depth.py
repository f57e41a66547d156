"""How far it is from the kubelet's call to the hook, and how often a reader changes the file on the way.

Counted on the thread that handles the call, in a driver's process on the embedded cluster: functions of the SDK and of
our drivers. Comprehensions are not counted, because Python 3.12 does not call them.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType

import pytest

import dra_sdk
from dra_sdk import Claim, ContainerEdits, Device, DriverInfo, HeldClaim, Node, PreparedDevice
from dra_sdk.loader import Driver
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.tools.simulator import AllocatedDevice, EmbeddedCluster
from tests.embedded import settings_for

NAME = "lamps.example.com"
FRAMES = 9  # 12 at 5134cc5
CHANGES = 78  # 104 at 5134cc5
SDK = str(Path(dra_sdk.__file__).parent)


def is_counted(code: CodeType) -> bool:
    """Whether a function is one of the SDK or of a driver of ours."""
    return (code.co_filename.startswith(SDK) or "/dra_driver_" in code.co_filename) and not code.co_name.startswith("<")


def stack() -> list[str]:
    """The functions that are counted and now run on this thread, the newest first."""
    names: list[str] = []
    frame = inspect.currentframe()
    while frame is not None:
        if is_counted(frame.f_code):
            names.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return names


class Calls:
    """A profile function for `threading.setprofile`: what is called on each thread, in order."""

    def __init__(self) -> None:
        self._calls: dict[int, list[CodeType]] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and is_counted(frame.f_code):
            self._calls.setdefault(threading.get_ident(), []).append(frame.f_code)

    def clear(self) -> None:
        """Forget all calls."""
        self._calls.clear()

    def on_thread_of(self, name: str) -> list[CodeType]:
        """The calls on the thread that called a function."""
        (calls,) = (calls for calls in list(self._calls.values()) if name in {code.co_qualname for code in calls})
        return list(calls)


class Lamps:
    """A driver of lamps, with one variable for each."""

    def __init__(self) -> None:
        self.stacks: list[list[str]] = []

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME)

    def dra_discover(self, node: Node) -> list[Device]:
        return [Device("lamp-0"), Device("lamp-1")]

    def dra_prepare(self, claim: Claim[None]) -> Iterator[PreparedDevice]:
        self.stacks.append(stack())
        for device in claim.devices:
            yield device.prepared(ContainerEdits(env={"LAMP": device.name}))

    def dra_unprepare(self, claim: HeldClaim) -> None: ...


@pytest.fixture
def calls() -> Iterator[Calls]:
    """The calls on threads that start in the test."""
    calls = Calls()
    threading.setprofile(calls)
    yield calls
    threading.setprofile(None)


def test_from_the_kubelet_to_the_hook(calls: Calls) -> None:
    lamps = Lamps()
    with EmbeddedCluster() as cluster, DriverProcess(Driver.of(lamps), settings_for(cluster)):
        cluster.create_class("lamp")
        cluster.kubelet.wait_for_driver(NAME)
        for number in range(2):  # the first call imports modules and connects
            cluster.create_claim(f"claim-{number}", {"lamp": "lamp"})
            device = AllocatedDevice("lamp", NAME, cluster.node_name, f"lamp-{number}")
            cluster.allocate(f"claim-{number}", [device])
            calls.clear()
            cluster.run_pod(f"pod-{number}", [f"claim-{number}"])
            prepare = calls.on_thread_of("Preparer.prepare")
            cluster.stop_pod(f"pod-{number}")
    assert len(lamps.stacks[1]) <= FRAMES, lamps.stacks[1]
    files = [code.co_filename for code in prepare]
    assert sum(one != next_one for one, next_one in pairwise(files)) <= CHANGES, [code.co_qualname for code in prepare]
