"""Methods that are called like hooks: which are, which nearly are."""

from __future__ import annotations

from typing import Any

import pytest

from dra_sdk import DriverInfo, Node
from dra_sdk.errors import DriverLoadError
from dra_sdk.loader import Driver


class Lamp:
    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("lamp.example.com")

    def dra_discover(self, node: Node) -> list[Any]:
        return []

    def dra_prepare(self, claim: Any) -> list[Any]:
        return []


def refusal(plugin: object) -> str:
    with pytest.raises(DriverLoadError) as caught:
        Driver.of(plugin)
    return str(caught.value).partition(".Lampish")[2]


def lampish(**methods: Any) -> object:
    return type("Lampish", (Lamp,), {"__qualname__": "x.Lampish", **methods})()


def test_a_hook_that_is_nearly_called_so() -> None:
    known = "hooks are dra_driver_info, dra_discover, dra_prepare, dra_unprepare, dra_watch, dra_device_health"
    assert refusal(lampish(dra_preprae=lambda self: None)) == (
        f": unknown hook 'dra_preprae' (did you mean dra_prepare?); {known}"
    )
    assert refusal(lampish(dra_x=lambda self: None)) == f": unknown hook 'dra_x'; {known}"


def test_arguments_that_a_hook_is_not_given() -> None:
    wrong = lampish(dra_unprepare=lambda self, claims, nod: None)
    assert refusal(wrong) == (
        ": hook dra_unprepare asks for claims, nod, which it is not given; besides self it may take claim, node"
    )
    assert "asks for node, which it is not given; besides self it takes none" in refusal(
        lampish(dra_driver_info=lambda self, node: None)
    )

    def keyword(self: Any, claim: Any, *, retries: int) -> None: ...

    assert "hook dra_unprepare asks for retries" in refusal(lampish(dra_unprepare=keyword))

    def optional(self: Any, *more: Any, retries: int = 1, **others: Any) -> None: ...

    assert Driver.of(lampish(dra_unprepare=optional)).implements("dra_unprepare")


def test_self_is_needed_but_for_static_methods() -> None:
    assert refusal(lampish(dra_driver_info=lambda: None)) == ": hook dra_driver_info must take self first"
    static = lampish(dra_driver_info=staticmethod(lambda: DriverInfo("lamp.example.com")))
    assert Driver.of(static).info.name == "lamp.example.com"


def test_what_stands_where_a_required_hook_should() -> None:
    attribute = lampish(dra_driver_info=DriverInfo("lamp.example.com"))
    assert (
        refusal(attribute)
        == " lacks the required hook dra_driver_info; its dra_driver_info is a DriverInfo, want a method"
    )
    assert "its dra_discover is a property, want a method" in refusal(lampish(dra_discover=property(lambda self: [])))

    class Bare:
        __qualname__ = "x.Lampish"

        def prepare(self) -> None: ...

    assert refusal(Bare()) == (
        " lacks the required hooks dra_driver_info, dra_discover and dra_prepare; "
        "its method prepare would be a hook if it were called dra_prepare"
    )
