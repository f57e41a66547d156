"""The settings of the drivers that the chart knows, by the keys of its entries, so that a misspelt one is refused.

They are in the chart, `files/settings.json`, because a machine that renders it need not have the drivers. Names that
begin with `DRA_` are checked; others, such as HTTPS_PROXY or OTEL_…, are those of other programs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from dra_sdk.texts import closest

JSON = dict[str, Any]
FILE: Final = Path(__file__).parent / "chart/files/settings.json"
OURS: Final = "DRA_"
_PATTERNS: Final = (
    (re.compile(r"true or false"), r"^(true|false|yes|no|on|off|1|0)?$"),
    (re.compile(r"(number|seconds|integer)\b.*"), r"^([0-9]+(\.[0-9]+)?)?$"),
    (re.compile(r"[a-z]+( or [a-z]+)+"), ""),
)
"""What a setting accepts, as it is documented, and the pattern of its text; empty: one of the words."""


@cache
def known_settings() -> dict[str, dict[str, str]]:
    """Return for each driver the variables, with what each accepts."""
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


def env_schema(variables: Mapping[str, str]) -> JSON:
    """Return the JSON Schema of `env` of a driver with these settings."""
    names: JSON = {"anyOf": [{"enum": sorted(variables)}, {"not": {"pattern": f"^{OURS}"}}]}
    patterns = {name: {"pattern": pattern} for name, accepts in variables.items() if (pattern := _pattern(accepts))}
    return {"propertyNames": names, "properties": patterns}


def problems(key: str, env: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each variable of an entry that its driver does not have, or with a text of another kind."""
    variables = known_settings().get(key)
    if variables is None:
        return
    for name, text in env.items():
        where = f"value drivers.{key}.env.{name}"
        if name in variables:
            pattern = _pattern(variables[name])
            if pattern and not re.search(pattern, text):
                yield f"{where} must be {variables[name]} (got {text!r})"
        elif name.startswith(OURS):
            meant = closest(name, list(variables))
            yield f"{where} is no setting of the driver" + (f"; did you mean {meant}?" if meant else "")


def _pattern(accepts: str) -> str:
    for form, pattern in _PATTERNS:
        if form.fullmatch(accepts):
            return pattern or f"^({'|'.join(accepts.split(' or '))})?$"
    return ""
