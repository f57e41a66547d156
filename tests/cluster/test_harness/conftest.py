"""The layout and the state of a cluster that never ran."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.harness.layout import Layout
from tests.cluster.harness.state import PORTS, State


@pytest.fixture
def layout(tmp_path) -> Layout:
    made = Layout.of("unit", tmp_path)
    made.logs.mkdir(parents=True)
    return made


@pytest.fixture
def make_state() -> Callable[..., State]:
    def make(**changes) -> State:
        ports = dict(zip(PORTS, range(20001, 20001 + len(PORTS)), strict=True))
        fields = {"gates": {}, "ports": ports, "cache": "/c", "sysctls": {}}
        return State(**{"name": "unit", "version": "1.36.3", **fields, **changes})

    return make
