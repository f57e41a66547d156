"""Pods and containers for tests of NRI, and a plugin that is stopped with its test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dra_sdk.node.nri.events import Event
from dra_sdk.node.nri.plugin import ConnectOptions, NriPlugin
from dra_sdk.node.nri.session import SessionLimits, Subscription, Synchronize
from dra_sdk.testing.waiting import LONG
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

LIMITS = SessionLimits(register=LONG, synchronize=LONG)


def nothing(_pods: Sequence[pb.PodSandbox], _containers: Sequence[pb.Container]) -> list[pb.ContainerUpdate]:
    """Changes nothing at Synchronize."""
    return []


def pod(number: int = 0) -> pb.PodSandbox:
    return pb.PodSandbox(id=f"pod{number}", name=f"web-{number}", uid=f"uid{number}", namespace="shop")


def container(number: int = 0, *, of: int = 0, **fields: Any) -> pb.Container:
    return pb.Container(id=f"c{number}", pod_sandbox_id=f"pod{of}", name=f"app-{number}", **fields)


def pinned(cpus: str = "", mems: str = "") -> pb.CreateContainerResponse:
    """An adjustment of the cpuset."""
    answer = pb.CreateContainerResponse()
    answer.adjust.linux.resources.cpu.cpus = cpus
    answer.adjust.linux.resources.cpu.mems = mems
    return answer


def repinned(name: str, cpus: str, *, ignore_failure: bool = True) -> pb.ContainerUpdate:
    """An update of the cpuset of another container."""
    update = pb.ContainerUpdate(container_id=name, ignore_failure=ignore_failure)
    update.linux.resources.cpu.cpus = cpus
    return update


@contextmanager
def plugin(
    path: Path,
    subscriptions: Mapping[Event, Subscription] | None = None,
    *,
    name: str = "test",
    index: int = 10,
    synchronize: Synchronize = nothing,
    connected: bool = True,
) -> Iterator[NriPlugin]:
    """A started plugin, connected unless the test says otherwise; afterwards all its threads have ended."""
    started = NriPlugin(name, synchronize, subscriptions or {}, ConnectOptions(index, path, LIMITS))
    started.start()
    try:
        if connected:
            assert started.wait_synchronized(LONG)
        yield started
    finally:
        assert started.stop(LONG)
