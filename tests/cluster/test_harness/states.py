"""The state of a cluster that never ran."""

from __future__ import annotations

from tests.cluster.harness.state import PORTS, State


def make_state(**changes) -> State:
    ports = dict(zip(PORTS, range(20001, 20001 + len(PORTS)), strict=True))
    fields = {"gates": {"AllAlpha": False, "AllBeta": True}, "ports": ports, "cache": "/c", "sysctls": {}}
    return State(**{"name": "unit", "version": "1.36.3", **fields, **changes})
