"""Why a claim has the devices it has, or why it cannot have any, and the smallest change that would help.

    explanation = explain(snapshot, "default/training")
    print(text(explanation))

Each change that is told of was tried with the allocator: with it, the claim can be had.
"""

from __future__ import annotations

from dra_sdk.tools.scheduling.explain.explaining import explain, explain_outcome, explain_pod, explain_pod_outcome
from dra_sdk.tools.scheduling.explain.model import (
    Change,
    Conflict,
    Drop,
    Explanation,
    Got,
    NodeReport,
    PodExplanation,
    RequestReport,
    Stage,
)
from dra_sdk.tools.scheduling.explain.subject import ExplainError
from dra_sdk.tools.scheduling.explain.text import text

__all__ = [
    "Change",
    "Conflict",
    "Drop",
    "ExplainError",
    "Explanation",
    "Got",
    "NodeReport",
    "PodExplanation",
    "RequestReport",
    "Stage",
    "explain",
    "explain_outcome",
    "explain_pod",
    "explain_pod_outcome",
    "text",
]
