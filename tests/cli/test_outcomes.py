"""What `simulate` and `explain` have in common: outcomes before and after a change, and what is loaded for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PIZZA = Path(__file__).parents[2] / "docs/examples/pizza.yaml"
SCRIPT = """
import sys
from dra_sdk.cli.main import main
status = main(sys.argv[1:])
print(status, *sorted(name for name in sys.modules if name.startswith("dra_sdk.")), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("command", "unneeded"),
    [
        ("simulate", ("dra_sdk.node", "dra_sdk.tools.scheduling.explain", "dra_sdk.tools.scheduling.picture")),
        ("explain", ("dra_sdk.node", "dra_sdk.tools.scheduling.picture")),
    ],
)
def test_files_are_scheduled_without_the_nodes_half(command: str, unneeded: tuple[str, ...]) -> None:
    words = [sys.executable, "-c", SCRIPT, command, PIZZA]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    status, *loaded = done.stderr.splitlines()[-1].split()
    assert status == "1", "dave gets no pizza"
    assert "dra_sdk.tools.scheduling.cluster.scheduling_cycle" in loaded
    assert [name for name in loaded if name.startswith(unneeded)] == []
