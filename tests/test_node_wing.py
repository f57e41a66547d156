"""What runs as root on every node grows only on purpose."""

from __future__ import annotations

import pytest

from tests.node_wing import NodeWing, measure

PACKAGES = {
    "google",  # protobuf
    "grpc",
    "httptools",
    "kubernetes",
    "packaging",
    "pluggy",
    "prometheus_client",
    "pydantic",
    "pydantic_core",
    "re2",  # imported when an overlay has a regular expression
    "yaml",
}


@pytest.fixture(scope="module")
def wing() -> NodeWing:
    return measure()


def test_a_node_needs_these_packages_and_no_others(wing):
    assert set(wing.packages) == PACKAGES


def test_the_wing_is_a_part_of_what_it_imports(wing):
    assert 40 < wing.own.modules < wing.imported.modules
    assert wing.own.modules < wing.own.lines < wing.imported.lines


def test_one_line_says_all(wing):
    line = str(wing)
    assert "\n" not in line
    assert line.startswith(f"node wing: {wing.own.modules} modules, {wing.own.lines} lines; ")
    assert line.endswith("re2, yaml")
