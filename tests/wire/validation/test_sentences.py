from __future__ import annotations

import pytest

from dra_sdk.wire.validation import sentence
from dra_sdk.wire.validation.problems import invalid
from tests.wire.validation.objects import claim, device, request, resource_slice, template

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
