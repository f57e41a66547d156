"""A node made of files with the hardware of `machine.py`, and the driver on it. No test needs a cluster, or root."""

from pathlib import Path

import pytest
from dra_sdk.testing import DriverHarness, FakeNode

from {{ cookiecutter.__package }} import {{ cookiecutter.__class }}Driver

from machine import plug


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    """Make the node."""
    node = FakeNode(tmp_path)
    plug(node)
    return node


@pytest.fixture
def driver(node: FakeNode) -> DriverHarness:
    """Make the driver on the node."""
{%- if cookiecutter.kind == "sriov" %}
    return DriverHarness(lambda: {{ cookiecutter.__class }}Driver(effects=node.effects), node)
{%- else %}
    return DriverHarness({{ cookiecutter.__class }}Driver, node)
{%- endif %}
