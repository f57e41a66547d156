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
def stopped(cluster: Cluster, component: str) -> Iterator[None]:
    """A component that has ended and is started again afterwards."""
    cluster.stop(component)
    try:
        yield
    finally:
        cluster.start(component)
