"""Writes values.schema.json of the chart: `python -m tests.tools.manifests.schema`."""

from __future__ import annotations

import json

from dra_sdk.tools.manifests import CHART, values_schema

if __name__ == "__main__":
    text = json.dumps(values_schema(), indent=1, ensure_ascii=False)
    (CHART / "values.schema.json").write_text(f"{text}\n")
