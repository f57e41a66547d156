from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator.plain import is_plain


def test_single_values_that_make_sense_are_plain() -> None:
    attributes = {"a": {"string": "x"}, "b": {"int": 1}, "c": {"bool": False}, "d": {"version": "1.2.3"}}
    assert is_plain({"name": "gpu-0", "attributes": attributes, "capacity": {"memory": {"value": "1Gi"}}})
    assert is_plain({"name": "gpu-0"})


@pytest.mark.parametrize(
    "attribute", [{}, {"strings": ["x"]}, {"version": "one"}, {"version": 1}, {"int": True}, {"string": "x", "int": 1}]
)
def test_other_attributes_are_not(attribute: dict[str, Any]) -> None:
    assert not is_plain({"name": "gpu-0", "attributes": {"a": attribute}})


def test_other_capacities_are_not() -> None:
    assert not is_plain({"name": "gpu-0", "capacity": {"memory": {"value": "much"}}})
    assert not is_plain({"name": "gpu-0", "capacity": {"memory": {}}})
