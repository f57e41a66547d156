"""Outages of a cluster's components, which end with the block."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIGCONT, SIGSTOP

from tests.cluster.harness.cluster import Cluster


@contextmanager
def paused(cluster: Cluster, component: str) -> Iterator[None]:
    """Pauses a component, which keeps its connections and answers nothing."""
    pid = cluster.pid(component)
    os.kill(pid, SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, SIGCONT)


@contextmanager
def without_api_server(cluster: Cluster) -> Iterator[None]:
    """Kills the API server, which would otherwise wait a minute for its open watches.

    The rest of the control plane is killed and started with it. Otherwise each of its watches would be opened again
    after a pause of up to half a minute.
    """
    gone = ("scheduler", "controller-manager", "apiserver")
    for component in gone:
        cluster.kill(component)
    try:
        yield
    finally:
        for component in reversed(gone):
            cluster.start(component)


@contextmanager
def stopped(cluster: Cluster, component: str) -> Iterator[None]:
    """Stops a component, and starts it again afterwards."""
    cluster.stop(component)
    try:
        yield
    finally:
        cluster.start(component)
