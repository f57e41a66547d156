"""How far it is from CreateContainer to the hook of the CPU driver, and how much is done on the way.

A change of file is a call in the SDK or the driver, on the thread that handles the event, whose file differs from that
of the call before. At 5134cc5 there were 96 in 23 files, and 9 frames of the SDK to each of two hooks.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Any

from dra_driver_cpu import CpuDriver

import dra_sdk
from dra_sdk.loader import Driver
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.testing import DriverHarness, FakeNode, claim
from dra_sdk.testing.sysfs import regular_machine
from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.nri import NriRuntime
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.embedded import settings_for

pytest_plugins = ["dra_sdk.testing.plugin"]

FRAMES = 8
CHANGES = 84  # of which 16 are the eight small files of the host: there and back; two where a cache is still empty
MACHINE = regular_machine(sockets=1, cores=2, threads=1)

SDK = str(Path(dra_sdk.__file__).parent)
HANDLES = "NriSession._answer"
"""The function in which an event is handled, from the bytes of the request to the end of what follows the answer."""


@dataclass
class Handled:
    """The calls while an event was handled.

    files: the file of each call; the first is that of the caller.
    names: how often each function was called.
    frames: how many frames of the SDK there were on the stack when a hook was called, by its name.
    reads: how often each file of the machine was read.
    """

    files: list[str] = field(default_factory=list)
    names: Counter[str] = field(default_factory=Counter)
    frames: dict[str, int] = field(default_factory=dict)
    reads: Counter[Path] = field(default_factory=Counter)

    @property
    def changes(self) -> int:
        return sum(before != after for before, after in pairwise(self.files))


class Profile:
    """Counts the calls on threads that start while it is on; the newest CreateContainer is `handled`."""

    def __init__(self) -> None:
        self._thread = threading.local()
        self._ended = Event()
        self.handled = Handled()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_qualname == HANDLES and frame.f_back:
            self._thread.handled = Handled([frame.f_back.f_code.co_filename])
        handled: Handled | None = getattr(self._thread, "handled", None)
        if handled is None:
            return
        if event == "call" and ("/dra_driver_" in code.co_filename or code.co_filename.startswith(SDK)):
            self._count(handled, frame)
        elif event == "return" and code.co_qualname == HANDLES:
            self._thread.handled = None
            if handled.names["_create"]:
                self.handled = handled
                self._ended.set()

    @staticmethod
    def _count(handled: Handled, frame: FrameType) -> None:
        name = frame.f_code.co_name
        handled.files.append(frame.f_code.co_filename)
        handled.names[name] += 1
        if name.startswith("dra_"):
            handled.frames[name] = sum(file.startswith(SDK) for file in _stack(frame))
        if name == "read_text":
            handled.reads[frame.f_locals["path"]] += 1

    @contextmanager
    def creation(self) -> Iterator[None]:
        """Create a container in this block; afterwards that is `handled`."""
        self._ended.clear()
        yield
        assert self._ended.wait(LONG)


def _stack(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back


@contextmanager
def profile() -> Iterator[Profile]:
    counted = Profile()
    threading.setprofile(counted)
    try:
        yield counted
    finally:
        threading.setprofile(None)


def check(handled: Handled) -> None:
    """One hook is near, and nothing is done twice for it."""
    assert list(handled.frames) == ["dra_synchronize"]
    assert handled.frames["dra_synchronize"] <= FRAMES
    assert handled.changes <= CHANGES
    assert set(handled.reads.values()) == {1}
    assert (handled.names["snapshot"], handled.names["resources_of"]) == (1, 1)


def test_a_container_without_claims(dra_node: FakeNode) -> None:
    dra_node.machine(MACHINE)
    with EmbeddedCluster() as cluster, profile() as counted:
        settings = settings_for(cluster, host_root=dra_node.root)
        assert settings.nri_socket
        with (
            NriRuntime(settings.nri_socket, request_timeout=LONG) as runtime,
            DriverProcess(Driver.of(CpuDriver()), settings),
        ):
            for number in range(2):  # the first one fills caches
                pod = pb.PodSandbox(id=f"pod{number}", namespace="default", name="web", uid=f"uid{number}")
                runtime.run_pod(pod)
                container = pb.Container(id=f"c{number}", pod_sandbox_id=pod.id, name="main", env=["A=b"])
                with counted.creation():
                    runtime.create_container(container)
                assert container.id in runtime.containers
    check(counted.handled)


def test_a_container_with_a_claim(dra_node: FakeNode, dra_driver: Any) -> None:
    dra_node.machine(MACHINE)
    with profile() as counted:
        driver: DriverHarness = dra_driver(CpuDriver)
        with driver.nri() as runtime:
            pod = runtime.run_pod(driver.prepare(claim("cpu")))
            for _ in range(2):
                with counted.creation():
                    container = pod.create_container()
                container.stop()
    check(counted.handled)
