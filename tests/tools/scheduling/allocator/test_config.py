from __future__ import annotations

from typing import Any

from dra_sdk.model.claim import base_request
from dra_sdk.tools.scheduling.allocator import Features, config
from tests.tools.scheduling.allocator.build import (
    NEWER,
    a_slice,
    allocated,
    allocator,
    claim,
    device,
    device_class,
    first_available,
    request,
    wish,
)


def opaque(text: str) -> dict[str, Any]:
    return {"opaque": {"driver": "gpu.example.com", "parameters": {"is": text}}}


def of(
    *requests: dict[str, Any], entries: list[dict[str, Any]] | None = None, features: Features | None = None
) -> list[tuple[Any, ...]]:
    """Source, requests and text of each entry."""
    classes = [
        device_class("gpu", config=[opaque("gpu")]),
        device_class("big", config=[opaque("big 1"), opaque("big 2")]),
    ]
    devices = a_slice(*(device(f"d{index}") for index in range(4)))
    found = allocated(allocator(devices, classes=classes, features=features), claim(*requests, config=entries or []))
    assert found
    return [
        (each["source"], each.get("requests"), each["opaque"]["parameters"]["is"])
        for each in found[0]["devices"]["config"]
    ]


def test_classes_come_first_and_each_once() -> None:
    big = request("b", deviceClassName="big")
    assert of(request("a"), big, request("c"), entries=[opaque("mine")]) == [
        ("FromClass", ["a", "c"], "gpu"),
        ("FromClass", ["b"], "big 1"),
        ("FromClass", ["b"], "big 2"),
        ("FromClaim", None, "mine"),
    ]


def test_only_the_chosen_alternative_counts() -> None:
    both = first_available("r", big=wish("false", deviceClassName="big"), small=wish())
    entries = [{"requests": [name], **opaque(name)} for name in ("r", "r/big", "r/small")]
    assert of(both, entries=entries) == [
        ("FromClass", ["r/small"], "gpu"),
        ("FromClaim", ["r"], "r"),
        ("FromClaim", ["r/small"], "r/small"),
    ]


def test_an_entry_for_several_requests_is_there_for_each() -> None:
    entry = {"requests": ["a", "b"], **opaque("both")}
    found = of(request("a"), request("b"), request("c"), entries=[entry])
    assert found[1:] == [("FromClaim", ["a", "b"], "both")] * 2


def test_since_1_37_an_entry_is_there_once() -> None:
    entries = [{"requests": ["a", "b"], **opaque("two")}, {"requests": ["a"], **opaque("one")}]
    found = of(request("a"), request("b"), request("c", deviceClassName="big"), entries=entries, features=NEWER)
    assert found == [
        ("FromClass", ["a", "b"], "gpu"),
        ("FromClass", ["c"], "big 1"),
        ("FromClass", ["c"], "big 2"),
        ("FromClaim", ["a", "b"], "two"),
        ("FromClaim", ["a"], "one"),
    ]


def test_since_1_37_an_entry_for_all_requests_names_none() -> None:
    both = first_available("r", big=wish("false", deviceClassName="big"), small=wish())
    entries = [{"requests": ["q", "r/small"], **opaque("all")}, {"requests": ["q", "r/big"], **opaque("some")}]
    assert of(request("q"), both, entries=entries, features=NEWER) == [
        ("FromClass", None, "gpu"),
        ("FromClaim", None, "all"),
        ("FromClaim", ["q", "r/big"], "some"),
    ]


def test_what_applies_to_a_result() -> None:
    entries = [
        {"source": "FromClass", "requests": ["r"], **opaque("r")},
        {"source": "FromClaim", **opaque("all")},
        {"source": "FromClaim", "requests": ["r/other"], **opaque("other")},
        {"source": "FromClaim", "requests": ["r"]},
    ]
    assert config.for_result(entries, {"request": "r/small"}) == entries[:2]
    assert config.for_result(entries, {"request": "q"}) == entries[1:2]


def test_the_base_of_a_reference() -> None:
    assert (base_request("r/small"), base_request("r")) == ("r", "r")
