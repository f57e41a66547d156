"""CDI specs: the one of a claim, built and checked; and one that came from elsewhere, checked.

The path of a claim is plain functions over the author's dataclasses and dicts: three devices take some tens of
microseconds, where pydantic models would take several times that and their import tens of milliseconds. What is
built goes through the very checks that a foreign spec goes through.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model import JSON
from dra_sdk.model.edits import ContainerEdits
from dra_sdk.wire.cdi import shape
from dra_sdk.wire.cdi.checks import content_problems, spec_problems
from dra_sdk.wire.cdi.edits import edits_to_json, env_problems
from dra_sdk.wire.cdi.versions import EARLIEST, minimum_version


def claim_spec(kind: str, devices: Mapping[str, ContainerEdits]) -> JSON:
    """The CDI spec of kind `vendor/class` with these devices, by name; its version is the lowest that suffices.

    Raises InvalidObjectError with a sentence per broken rule, which names the CDI device and the field. A device with
    empty edits is refused, as runtimes refuse it: leave it out and give the kubelet no CDI ID (`is_empty`).
    """
    subject, misfits, listed = f"CDI spec {kind}", list[str](), list[JSON]()
    for name, edits in devices.items():
        found: list[str] = []
        listed.append({"name": name, "containerEdits": shape.EDITS.read(edits_to_json(edits), found)})
        misfits += [f"device {name}: {each.lstrip('.')}" for each in found]
    if misfits:
        raise InvalidObjectError(subject, misfits)
    spec: JSON = {"cdiVersion": EARLIEST, "kind": kind, "devices": listed}
    spec["cdiVersion"] = minimum_version(spec)
    problems = [f"device {name}: {problem}" for name, edits in devices.items() for problem in env_problems(edits)]
    problems.extend(content_problems(spec))
    if problems:
        raise InvalidObjectError(subject, problems)
    return spec


def check_spec(spec: Any, source: str = "") -> JSON:
    """Check a spec as a runtime does that loads it from `source`, and return it without nulls.

    Raises InvalidObjectError: first for unknown fields and wrong JSON types, else with a sentence per broken rule.
    """
    subject = f"CDI spec {source}".strip()
    found = _of_right_shape(spec, subject)
    if problems := list(spec_problems(found)):
        raise InvalidObjectError(subject, problems)
    return found


def _of_right_shape(spec: Any, subject: str) -> JSON:
    problems: list[str] = []
    found: JSON = shape.SPEC.read(spec, problems)
    if problems:
        raise InvalidObjectError(subject, [_by_device(problem.lstrip(".: "), spec) for problem in problems])
    return found


def _by_device(problem: str, spec: Any) -> str:
    """`devices[2].containerEdits.x: …` as `device NAME: x: …`, as all other sentences are."""
    start, _, rest = problem.partition("].")
    index = start.removeprefix("devices[")
    if not rest or not index.isdecimal():
        return problem
    device = spec["devices"][int(index)]
    return f"device {device.get('name', index)}: {rest.removeprefix('containerEdits.')}"
