from __future__ import annotations

import pytest

from dra_sdk.wire.validation import sentence
from dra_sdk.wire.validation.problems import (
    byte_length,
    duplicate,
    invalid,
    join_path,
    not_supported,
    show,
    split_path,
    too_long,
    too_many,
)
from tests.wire.validation.objects import claim, device, request, resource_slice, template


def test_a_problem_reads_as_field_and_sentence():
    assert str(duplicate("spec.devices[1]", "gpu-0")) == "spec.devices[1]: 'gpu-0' was given before"
    assert str(not_supported("spec.x", "C", ("A", "B"))) == "spec.x: must be one of A, B, is 'C'"
    assert str(too_many("spec.x", 3, 2)) == "spec.x: must have at most 2 items, has 3"


def test_lengths_are_counted_in_bytes():
    assert list(too_long("x", "é" * 32, 64)) == []
    assert [str(problem) for problem in too_long("x", "é" * 33, 64)] == ["x: must be at most 64 bytes, has 66"]
    assert byte_length("\ud800") == 3


def test_long_values_are_shortened():
    assert show("a" * 200) == f"'{'a' * 55}...'"
    assert show([1, 2]) == "[1, 2]"


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
def test_paths_are_split(path, tokens):
    assert split_path(path) == tokens


@pytest.mark.parametrize(
    ("tokens", "path"),
    [
        ([], ""),
        (["spec", "devices", 3, "name"], "spec.devices[3].name"),
        (["spec", "devices", 0, "attributes", "foo", "int"], "spec.devices[0].attributes[foo].int"),
        (["requests", 0, "exactly", "capacity", "requests", "memory"], "requests[0].exactly.capacity.requests[memory]"),
    ],
)
def test_paths_are_joined(tokens, path):
    assert join_path(tokens) == path


SLICE = resource_slice(
    device(
        "gpu-0",
        attributes={"model": {"string": "x"}},
        capacity={"a.com/memory": {"value": "1"}},
        taints=[{"key": "a.com/hot"}],
    ),
    device("", consumesCounters=[{"counterSet": "gpu", "counters": {"memory": {"value": "1"}}}]),
)
ALTERNATIVES = {"name": "any", "firstAvailable": [{"name": "large"}]}


@pytest.mark.parametrize(
    ("obj", "field", "words"),
    [
        (SLICE, "spec", "spec"),
        (SLICE, "spec.driver", "driver"),
        (SLICE, "spec.pool.name", "pool.name"),
        (SLICE, "metadata.labels", "metadata.labels"),
        (SLICE, "spec.devices", "devices"),
        (SLICE, "spec.devices[0]", "device gpu-0"),
        (SLICE, "spec.devices[0].attributes", "device gpu-0: attributes"),
        (SLICE, "spec.devices[0].attributes[model].string", "device gpu-0: attribute model: string"),
        (SLICE, "spec.devices[0].attributes[gone]", "device gpu-0: attributes[gone]"),
        (
            SLICE,
            "spec.devices[0].capacity[a.com/memory].requestPolicy.default",
            "device gpu-0: capacity a.com/memory: requestPolicy.default",
        ),
        (SLICE, "spec.devices[0].taints[0].effect", "device gpu-0: taint a.com/hot: effect"),
        (SLICE, "spec.devices[1].name", "devices[1].name"),
        (SLICE, "spec.devices[1].consumesCounters[0].counters[memory]", "devices[1]: counter set gpu: counter memory"),
        (SLICE, "spec.devices[7].name", "devices[7].name"),
        (claim(request("gpu")), "spec.devices.requests[0].exactly.count", "request gpu: exactly.count"),
        (
            claim(ALTERNATIVES),
            "spec.devices.requests[0].firstAvailable[0].name",
            "request any: alternative large: name",
        ),
        (claim(), "spec.devices.config[0].requests[1]", "devices.config[0].requests[1]"),
        (template(), "spec.spec.devices.requests[0].name", "request gpu: name"),
        ("no object", "spec.devices[0].name", "devices[0].name"),
        (None, "", ""),
    ],
)
def test_parts_are_called_by_their_names(obj, field, words):
    assert sentence(invalid(field, "must be good"), obj) == f"{words}: must be good".lstrip(": ")
