"""The bridge is small enough to be read in one sitting."""

from __future__ import annotations

from pathlib import Path

import dra_driver_plugin

LIMIT = 760
NOT_COUNTED = {"testing.py", "deviceplugin_v1beta1_pb2.py"}
"""The plugin for tests, and generated messages."""


def test_the_bridge_has_at_most_760_lines_of_code_and_docstrings() -> None:
    modules = set(Path(dra_driver_plugin.__file__).parent.glob("*.py"))
    counted = {module for module in modules if module.name not in NOT_COUNTED}
    lines = [line.strip() for module in counted for line in module.read_text().splitlines()]
    assert len(counted) == len(modules) - len(NOT_COUNTED)
    assert sum(bool(line) and not line.startswith("#") for line in lines) <= LIMIT
