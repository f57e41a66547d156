"""Read CDI specs that others wrote, in YAML or JSON.

This is a module of its own because a driver only writes specs, and the YAML parser takes long to import.
"""

from __future__ import annotations

from typing import Any

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model import JSON
from dra_sdk.wire.cdi import schema
from dra_sdk.wire.cdi.validation import spec_problems
from dra_sdk.wire.documents import read_documents


def read_spec(content: bytes, source: str) -> dict[str, Any]:
    """Return the spec in the content of the file `source`, checked as by `check_spec`.

    Raises InvalidObjectError that names `source`, also if the content is not YAML or JSON (with line and column), is
    empty, or has several documents.
    """
    specs = [document.value for document in read_documents(content, f"CDI spec {source}") if document.value is not None]
    if len(specs) != 1:
        raise InvalidObjectError(f"CDI spec {source}", [f"must hold one document, has {len(specs) or 'none'}"])
    return check_spec(specs[0], source)


def check_spec(spec: Any, source: str = "") -> JSON:
    """Check a spec as a runtime does that loads it from the file `source`. Return it without nulls.

    Raises InvalidObjectError with a sentence for each unknown field and wrong JSON type; if there are none, with a
    sentence for each broken rule.
    """
    subject = f"CDI spec {source}".strip()
    checked = _fit_schema(spec, subject)
    if problems := list(spec_problems(checked)):
        raise InvalidObjectError(subject, problems)
    return checked


def _fit_schema(spec: Any, subject: str) -> JSON:
    problems: list[str] = []
    checked: JSON = schema.SPEC.read(spec, problems)
    if problems:
        raise InvalidObjectError(subject, [_by_device(problem.lstrip(".: "), spec) for problem in problems])
    return checked


def _by_device(problem: str, spec: Any) -> str:
    """Turn `devices[2].containerEdits.x: …` into `device NAME: x: …`, the form of all other sentences."""
    start, _, rest = problem.partition("].")
    index = start.removeprefix("devices[")
    if not rest or not index.isdecimal():
        return problem
    device = spec["devices"][int(index)]
    return f"device {device.get('name', index)}: {rest.removeprefix('containerEdits.')}"
