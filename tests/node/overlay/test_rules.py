from __future__ import annotations

import pytest

from dra_sdk import cel
from dra_sdk.node.overlay import Rule


def rule(*nodes: str, match: str | None = None) -> Rule:
    return Rule("rules[0]", cel.compile(match) if match else None, nodes, {}, (), override=False)


@pytest.mark.parametrize(
    ("nodes", "node", "concerned"),
    [
        ((), "anything", True),
        (("gpu-*",), "gpu-1", True),
        (("gpu-*",), "cpu-1", False),
        (("a", "gpu-[12]"), "gpu-2", True),
        (("GPU-*",), "gpu-1", False),
    ],
)
def test_nodes_are_patterns(nodes: tuple[str, ...], node: str, concerned: bool):
    assert rule(*nodes).concerns(node) is concerned


def test_without_an_expression_every_device_is_selected():
    view = cel.DeviceView("d", {"index": 1})
    assert rule().selects(view)
    assert rule(match="device.attributes['d'].index == 1").selects(view)
    assert not rule(match="device.attributes['d'].index == 2").selects(view)
