"""The models read every object of the upstream validation tables."""

from __future__ import annotations

import json
from typing import Any

from dra_sdk.wire.validation.decoding import KINDS
from tests.vectors import ROOT


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def test_every_upstream_object_is_read_and_written_unchanged():
    files = sorted((ROOT / "validation-cases").glob("*/*.json"))
    assert files
    for file in files:
        case = json.loads(file.read_text())
        for obj in filter(None, (case["object"], case.get("oldObject"))):
            assert KINDS[obj["kind"]].model_validate(obj).to_json() == without_nulls(obj), file.name
