"""The result of a check, and where the parts of a node are."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Status = Literal["ok", "missing", "unknown"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check.

    status: ok, missing, or unknown: it cannot be seen from here.
    subject: what was looked at.
    found: what is there, in a sentence without a full stop.
    remedy: what to do, or how to find out; empty if it is ok.
    """

    status: Status
    subject: str
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class NodePaths:
    """Where the parts of a node are, as this process sees them.

    kubelet: the kubelet's root directory.
    registry: where a driver makes its registration socket, plugins_registry or a directory below it.
    plugins: where a driver keeps socket and state, `plugins` or the driver's own directory below it.
    cdi: where the drivers write CDI specs.
    root: the host's root, or / where this process has the same.
    nri: the runtime's socket for NRI plugins, if the driver has a setting for it; None for the usual one of the host.
    in_pod: whether this process is a driver's pod, which has of the host only what is mounted.
    """

    kubelet: Path
    registry: Path
    plugins: Path
    cdi: Path
    root: Path = Path("/")
    nri: Path | None = None
    in_pod: bool = False
