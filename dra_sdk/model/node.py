"""The node a driver runs on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Node:
    """What a hook may know of its node.

    `root` is where the host's `/sys`, `/proc` and `/dev` are found: `/` on a real node, the host mount inside a
    container, or a tree of files in a test. Readers of `dra_sdk.hardware` take it.
    """

    name: str
    root: Path = Path("/")
