"""Trouble for the components of a cluster that leaves no trace when it is over."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIGCONT, SIGSTOP

from tests.cluster.harness.cluster import Cluster


@contextmanager
def paused(cluster: Cluster, component: str) -> Iterator[None]:
    """A component that keeps its connections and answers nothing."""
    pid = cluster.pid(component)
    os.kill(pid, SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, SIGCONT)


@contextmanager
def without_api_server(cluster: Cluster) -> Iterator[None]:
    """No API server, killed: it would wait a minute for those who watch it.

    The control plane ends with it and starts with it, as where there is a leader to elect: else, each of its watches
    would be opened again after a pause of its own, up to half a minute.
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
    """A component that has ended and is started again afterwards."""
    cluster.stop(component)
    try:
        yield
    finally:
        cluster.start(component)
