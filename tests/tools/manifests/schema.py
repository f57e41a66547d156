"""Writes values.schema.json and files/settings.json of the chart: `python -m tests.tools.manifests.schema`."""

from __future__ import annotations

import json
from typing import Any

from dra_sdk.loader import find_settings
from dra_sdk.node.runtime.settings import SETTINGS
from dra_sdk.tools.manifests import CHART, Chart, values_schema
from dra_sdk.tools.manifests.driver_settings import FILE

OF_OTHERS = ("DRA_SDK_CONFIG", "DRA_SDK_AUDIT_LOG")
"""What a process reads that is no row of SETTINGS."""


def settings() -> dict[str, dict[str, str]]:
    """The settings of each driver of the chart, with what each accepts."""
    of_process = dict.fromkeys([*OF_OTHERS, *(setting.env for setting in SETTINGS)], "text")
    found: dict[str, dict[str, str]] = {}
    for key in Chart().defaults["drivers"]:
        own = find_settings(key)
        documented = own.documentation() if own else ()
        found[key] = {**of_process, **{docs.variable: docs.accepts for docs in documented}}
    return found


def text(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(settings()))
    (CHART / "values.schema.json").write_text(text(values_schema()))
