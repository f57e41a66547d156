from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.cel import compile  # noqa: A004
from dra_sdk.tools.conformance.scheduler import match
from dra_sdk.tools.conformance.wanted import Wanted
from dra_sdk.tools.scheduling.allocator import AllocationError

NODE = {"metadata": {"name": "node-1"}}
REQUEST = {"deviceClassName": "dra-conformance", "allocationMode": "ExactCount", "count": 1}
CLAIM = {
    "metadata": {"name": "claim", "namespace": "ns", "uid": "u"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": REQUEST}]}},
}


def piece(*names: str, driver: str = "d.example.com", count: int = 1) -> dict[str, Any]:
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": count}
    devices = [{"name": name, "attributes": {"model": {"string": name}}} for name in names]
    spec = {"driver": driver, "nodeName": "node-1", "pool": pool, "devices": devices}
    return {"metadata": {"name": f"slice-{driver}"}, "spec": spec}


def allocated(*slices: dict[str, Any], wanted: Wanted | None = None, held: Any = ()) -> str:
    found = match(CLAIM, NODE, slices, wanted=wanted or Wanted(), driver="d.example.com", held=held)
    (result,) = found["devices"]["results"]
    return f"{result['driver']}/{result['device']}"


def test_the_scheduler_chooses_a_device_of_the_driver() -> None:
    assert allocated(piece("other", driver="a.example.com"), piece("one", "two")) == "d.example.com/one"


def test_what_the_user_wants_is_heeded() -> None:
    wanted = Wanted([compile('device.attributes["d.example.com"].model == "two"')])
    assert allocated(piece("one", "two"), wanted=wanted) == "d.example.com/two"


def test_what_others_hold_is_taken() -> None:
    result = {"request": "r", "driver": "d.example.com", "pool": "pool", "device": "one"}
    held = {"metadata": {"uid": "x"}, "status": {"allocation": {"devices": {"results": [result]}}}}
    assert allocated(piece("one", "two"), held=[held]) == "d.example.com/two"


def test_no_device_is_an_error_that_says_so() -> None:
    with pytest.raises(AllocationError, match="no device of the driver's slices can be allocated"):
        allocated(piece("one", count=2))
