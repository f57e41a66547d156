from __future__ import annotations

from dra_sdk.tools.scheduling.explain.model import Conflict, Drop, Got, NodeReport, RequestReport, Stage
from dra_sdk.tools.scheduling.explain.summary import devices, failure, of_request, reason, success


def report(*stages: Stage, needed: int | None = 2, found: int = 4) -> RequestReport:
    return RequestReport("gpu", "big", needed, 9, found, stages, stages[-1].kept if stages else found, enough=False)


def test_each_kind_of_reason():
    assert of_request(report(Stage("class", "selector 0", 0))) == "request gpu: of 4 devices none is of class big"
    used = Stage("use", "", 1, (Drop("in use", 3, "a"),))
    assert of_request(report(used)) == "request gpu: 1 of 4 free (3 in use), 2 needed"
    values = Stage("selector", "selector 1", 0, (Drop("fail x", 3, "a", ("memory is 1Gi", "memory is 2Gi", "more")),))
    assert of_request(report(values)) == (
        "request gpu: of 4 devices none passes selector 1 (memory is 1Gi, memory is 2Gi)"
    )
    assert of_request(report(Stage("class", "", 1, (Drop("x", 3, "a"),)), used)).startswith(
        "request gpu: 1 of 4 of class big"
    )


def test_too_few_devices_from_the_start():
    assert of_request(report(found=1)) == "request gpu: 1 device within reach of the node, 2 needed"
    assert of_request(report(Stage("class", "", 0), found=0)) == "request gpu: there is no device"


def test_all_devices():
    stages = (Stage("class", "", 3, (Drop("x", 1, "a"),)), Stage("use", "", 1, (Drop("in use", 2, "a"),)))
    assert of_request(report(*stages, needed=None)) == (
        "request gpu: all 3 devices that match are needed, 2 are not to be had (2 in use)"
    )


def test_what_is_decisive():
    failing = report(Stage("class", "", 0))
    assert reason(NodeReport(("n",), False, obstacle="cordoned", error="e")) == "cordoned"
    assert reason(NodeReport(("n",), False, error="e", requests=(failing,))) == "e"
    assert reason(NodeReport(("n",), False, conflicts=(Conflict("devices", "too few"),))) == "too few"
    assert reason(NodeReport(("n",), False)) == "the devices that are left do not go together"


def test_devices():
    got = (Got("a", "d.io/n1/x"), Got("a", "d.io/n1/y"), Got("a", "d.io/n1/z"), Got("b", "d.io/rack/7/w", admin=True))
    assert devices(got, "n1") == "a gets x, y and z; b gets d.io/rack/7/w (admin access)"
    assert success("claim c", got[:1], "n1") == "claim c can be had on n1: a gets x"
    assert success("claim c", (), "n1") == "claim c can be had on n1: it asks for no device"
    assert success("claim c", (), "") == "claim c can be had: it asks for no device"
    assert failure("claim c", ()) == "claim c cannot be had: there are no nodes"
