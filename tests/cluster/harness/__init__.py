"""A real single-node Kubernetes for tests, on this machine, in one folder; `down` removes all of it.

`Cluster.up()` from Python, `python -m tests.cluster.harness up` from a shell.
"""

from __future__ import annotations

from .cache import DEFAULT_VERSION, Cache
from .cluster import Cluster, take_down
from .errors import HarnessError
from .image import BUSYBOX, PAUSE
from .progress import Progress

__all__ = ["BUSYBOX", "DEFAULT_VERSION", "PAUSE", "Cache", "Cluster", "HarnessError", "Progress", "take_down"]
