"""Which nodes have the labels that a pod asks for, and what the others have in place of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.texts import did_you_mean, shortened
from dra_sdk.tools.scheduling.allocator.node_selection import node_labels, node_name
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod
from dra_sdk.tools.scheduling.cluster.snapshot import grouped

_SHOWN: Final = 4


def label_notes(pod: Pod, nodes: Sequence[JSON]) -> Iterator[str]:
    """Yield a sentence for each label of the pod that some node lacks: who has it, or what nodes have instead."""
    for key, values in _wanted_labels(pod).items():
        wanted = f"label {key}={' or '.join(values)}"
        having = [node_name(node) for node in nodes if node_labels(node).get(key) in values]
        if len(having) == len(nodes):
            continue
        if having:
            yield f"{wanted} is on {shortened(having, _SHOWN)}"
            continue
        others = grouped([node for node in nodes if key in node_labels(node)], partial(_label, key))
        if others:
            texts = [f"{value} on {shortened([*map(node_name, group)], 1)}" for value, group in others.items()]
            yield f"no node has {wanted}; {key} is {shortened(texts, _SHOWN)}{did_you_mean(values[0], list(others))}"
        else:
            known = list(dict.fromkeys(label for node in nodes for label in node_labels(node)))
            yield f"no node has {wanted}, or any label {key}{did_you_mean(key, known)}"


def _label(key: str, node: JSON) -> str:
    return node_labels(node)[key]


def _wanted_labels(pod: Pod) -> Mapping[str, Sequence[str]]:
    """Return the values that the pod asks for by label: those of nodeSelector, and In of the only term of affinity."""
    wanted: dict[str, Sequence[str]] = {key: [value] for key, value in pod.spec.node_selector.items()}
    terms = (pod.spec.required_nodes or {}).get("nodeSelectorTerms") or []
    for requirement in (terms[0].get("matchExpressions") or []) if len(terms) == 1 else []:
        if requirement["operator"] == "In":
            wanted.setdefault(requirement["key"], requirement["values"])
    return wanted
