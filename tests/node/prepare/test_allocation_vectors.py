"""Which configuration reaches which device, as upstream's table says."""

from __future__ import annotations

from typing import Any

from tests.node.prepare.test_allocation import LAMPS, V1, read, watts
from tests.vectors import files


def ours(given: dict[str, Any], mark: int) -> dict[str, Any]:
    """The opaque part of an upstream entry, where it has one, with parameters that tell it from the others."""
    parameters = {"apiVersion": V1, "kind": "Lamp", "watts": mark}
    return {"opaque": {"driver": LAMPS.name, "parameters": parameters}} if given.get("opaque") else {}


def test_entries_match() -> None:
    table = files("dra-lib-cases/resourceclaim.TestConfigForResult")
    for name, content in table.items():
        case = content["case"]
        entries = case["deviceConfigurations"] or []
        marked = [read({**each, **ours(each, index + 1)}) for index, each in enumerate(entries)]
        wanted = [entries.index(each) + 1 for each in case["expectedConfigs"] or []]
        assert watts(marked, case["result"]["request"]) == [wanted], name
    assert len(table) == 6
