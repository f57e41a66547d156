from __future__ import annotations

from copy import deepcopy

from dra_sdk.tools.scheduling.explain.edits import REMOVED, changed, constraint_path, request_path, text_of, value_at
from tests.tools.scheduling.worlds import ROOT, claim, exactly

CLAIM = claim(
    "c",
    exactly("a", "x"),
    {"name": "b", "firstAvailable": [{"name": "one"}, {"name": "two"}]},
    constraints=[{"matchAttribute": ROOT}],
)


def test_changes_leave_the_original_alone():
    before = deepcopy(CLAIM)
    path = (*request_path(CLAIM, "a"), "count")
    made = changed(CLAIM, path, 3)
    assert value_at(made, path) == 3
    assert made["metadata"] is CLAIM["metadata"], "what did not change is shared"
    assert "constraints" in value_at(made, ("spec", "devices"))
    assert value_at(changed(CLAIM, constraint_path(0), REMOVED), constraint_path(0)) is None
    deep = changed(CLAIM, ("status", "new", "field"), REMOVED)
    assert deep["status"] == {"new": {}}
    assert before == CLAIM


def test_paths():
    path = request_path(CLAIM, "b/two")
    assert text_of(path) == "spec.devices.requests[1].firstAvailable[1]"
    assert value_at(CLAIM, path) == {"name": "two"}
    assert text_of((*path, "capacity", "requests", "dra.cpu/cpu")).endswith("[1].capacity.requests[dra.cpu/cpu]")
    assert value_at(CLAIM, ("spec", "nothing", 3)) is None
