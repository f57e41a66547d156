"""A machine made of files. `python tests/machine.py` writes it to `tree/host`."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from dra_sdk.testing import FakeNode

INCLUDE: list[str] = []  # what the tree has beyond the files that every node has
NAMES = ["seat-0", "seat-1", "seat-2", "seat-3"]


def plug(node: FakeNode) -> None:
    """Add what the driver reads: `node.file`, `link`, `device_node` and `machine` of `FakeNode`."""


{% include "tree.py" -%}
