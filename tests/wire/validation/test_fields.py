from __future__ import annotations

import pytest

from dra_sdk.wire.validation.fields import join, split


@pytest.mark.parametrize(
    ("path", "tokens"),
    [
        ("", []),
        ("spec", ["spec"]),
        ("spec.devices[3].attributes[foo].string", ["spec", "devices", 3, "attributes", "foo", "string"]),
        ("spec.devices[0].capacity[a.com/b].value", ["spec", "devices", 0, "capacity", "a.com/b", "value"]),
        ("spec.sharedCounters[0].counters[7].value", ["spec", "sharedCounters", 0, "counters", 7, "value"]),
        ("metadata.labels[a.b/c]", ["metadata", "labels", "a.b/c"]),
        (
            "spec.devices.requests[1].exactly.capacity.requests[memory]",
            ["spec", "devices", "requests", 1, "exactly", "capacity", "requests", "memory"],
        ),
    ],
)
def test_paths_are_taken_apart(path, tokens):
    assert split(path) == tokens


@pytest.mark.parametrize(
    ("tokens", "path"),
    [
        ([], ""),
        (["spec", "devices", 3, "name"], "spec.devices[3].name"),
        (["spec", "devices", 0, "attributes", "foo", "int"], "spec.devices[0].attributes[foo].int"),
        (["requests", 0, "exactly", "capacity", "requests", "memory"], "requests[0].exactly.capacity.requests[memory]"),
    ],
)
def test_paths_are_put_together(tokens, path):
    assert join(tokens) == path
