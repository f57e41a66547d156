"""`dra-sdk simulate --picture`: the outcome as one HTML page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dra_sdk.errors import SettingsError
from dra_sdk.tools.scheduling.cluster import ObjectKey, SchedulingOutcome, display_name
from dra_sdk.tools.scheduling.explain import Explanation, explain_outcome, explain_pod_outcome
from dra_sdk.tools.scheduling.picture import NotPlaced, build_scene, render_page

_EXPLAINED: Final = 20
"""How many are explained; for further ones the scheduler's own reason has to do."""


def write_picture(outcome: SchedulingOutcome, path: Path) -> None:
    """Write the page; SettingsError if the file cannot be written."""
    content = render_page(build_scene(outcome.snapshot, tuple(_waiting(outcome))))
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror}") from error


def _waiting(outcome: SchedulingOutcome) -> Iterator[NotPlaced]:
    left = _EXPLAINED
    for pod in outcome.unplaced:
        left -= 1
        yield NotPlaced(f"pod {display_name(pod.pod)}", _of_pod(outcome, pod.pod) if left >= 0 else pod.reason)
    for claim in outcome.unallocated:
        left -= 1
        yield NotPlaced(
            f"claim {display_name(claim.claim)}",
            _text(explain_outcome(outcome, claim.claim)) if left >= 0 else claim.reason,
        )


def _of_pod(outcome: SchedulingOutcome, key: ObjectKey) -> str:
    found = explain_pod_outcome(outcome, key)
    return "\n".join(_text(each) for each in found.claims if not each.satisfiable) or outcome.pods_by_key[key].reason


def _text(explanation: Explanation) -> str:
    """Why, without the name, so that the same reason is told once, and the smallest change that would help."""
    reason = explanation.summary.partition(" cannot be allocated")[2].lstrip(": ") or explanation.summary
    return f"{reason}\nWould help: {explanation.changes[0].text}" if explanation.changes else reason
