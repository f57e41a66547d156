from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.simulator.local import LocalClient
from tests.tools.simulator.conftest import SLICES, Http, slice_object


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("resourceVersionMatch=Exact", "resourceVersionMatch"),
        ("resourceVersionMatch=Roughly&resourceVersion=1", "resourceVersionMatch"),
        ("resourceVersionMatch=Exact&resourceVersion=0", "resourceVersionMatch"),
        ("resourceVersionMatch=Exact&resourceVersion=1&continue=abc", "resourceVersionMatch"),
        ("sendInitialEvents=true", "sendInitialEvents"),
        ("watch=true&sendInitialEvents=true", "resourceVersionMatch"),
        ("watch=true&resourceVersionMatch=NotOlderThan", "resourceVersionMatch"),
    ],
)
def test_options_that_do_not_go_together(http: Http, query: str, field: str) -> None:
    code, status = http("GET", f"{SLICES}?{query}")
    assert (code, status["reason"], status["details"]["kind"]) == (422, "Invalid", "ListOptions")
    assert status["details"]["causes"][0]["field"] == field


def test_any_version_will_do(http: Http, local: LocalClient) -> None:
    local.create("resourceslices", slice_object("a"))
    assert http("GET", f"{SLICES}/a?resourceVersion=0")[0] == 200
    assert len(http("GET", f"{SLICES}?resourceVersion=0")[1]["items"]) == 1
    assert len(http("GET", f"{SLICES}?resourceVersion=1&resourceVersionMatch=NotOlderThan")[1]["items"]) == 1


def test_a_version_to_come(http: Http, local: LocalClient) -> None:
    local.create("resourceslices", slice_object("a"))
    assert http("GET", f"{SLICES}/a?resourceVersion=9999")[0] == 504
    assert http("GET", f"{SLICES}?resourceVersion=9999")[0] == 504


def test_a_list_of_the_past(http: Http, local: LocalClient) -> None:
    kept = local.create("resourceslices", slice_object("a"))
    local.create("resourceslices", slice_object("b"))
    version = local.store.version
    local.patch("resourceslices", {"metadata": {"labels": {"x": "y"}}}, "a")
    local.delete("resourceslices", "b")
    local.create("resourceslices", slice_object("c"))
    code, found = listed(http, version)
    assert (code, found["metadata"]["resourceVersion"]) == (200, str(version))
    assert [item["metadata"]["name"] for item in found["items"]] == ["a", "b"]
    assert found["items"][0]["metadata"] == kept["metadata"]
    local.store.expire_history()
    code, status = listed(http, version)
    assert (code, status["reason"]) == (410, "Expired")


def listed(http: Http, version: int) -> tuple[int, Any]:
    return http("GET", f"{SLICES}?resourceVersion={version}&resourceVersionMatch=Exact")


def test_a_page_of_what_is_forgotten(http: Http, local: LocalClient) -> None:
    for name in "abc":
        local.create("resourceslices", slice_object(name))
    _, page = http("GET", f"{SLICES}?limit=2")
    local.create("resourceslices", slice_object("d"))
    local.store.expire_history()
    code, status = http("GET", f"{SLICES}?limit=2&continue={page['metadata']['continue']}")
    assert (code, status["reason"]) == (410, "Expired")
