"""Why a claim has its devices, or why it cannot be allocated, and the smallest change that would help.

    explanation = explain(snapshot, "default/training")
    print(format_explanation(explanation))

Every change that is suggested was tried: with it, the allocator allocates the claim.
`allocation_problem` is what is explained. `node_inspection` finds what prevents the allocation on each node:
`request_inspection` applies the `device_checks` to the devices of one request. `claim_changes` and `cluster_changes`
propose changes, and `trials` tries them. `explainer` puts it together.
"""

from __future__ import annotations

from dra_sdk.tools.scheduling.explain.allocation_problem import ExplainError
from dra_sdk.tools.scheduling.explain.explainer import Explainer, explain
from dra_sdk.tools.scheduling.explain.explanation import (
    Explanation,
    PodExplanation,
    SuggestedChange,
)
from dra_sdk.tools.scheduling.explain.explanation_text import format_explanation, format_explanations

__all__ = [
    "ExplainError",
    "Explainer",
    "Explanation",
    "PodExplanation",
    "SuggestedChange",
    "explain",
    "format_explanation",
    "format_explanations",
]
