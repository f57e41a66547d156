"""How much of a node's CPU, memory and extended resources pods request, and whether there is room for one more.

Source: component-helpers, PodRequests; scheduler plugin NodeResourcesFit. Devices of claims are not counted here.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from fractions import Fraction
from typing import Final

from dra_sdk.model.quantity import Quantity
from dra_sdk.tools.scheduling.cluster.core import Container, Node, Pod

Amounts = dict[str, Fraction]
_PODS: Final = "pods"
_POD_LEVEL: Final = ("cpu", "memory", "hugepages-")


def pod_requests(pod: Pod) -> Amounts:
    """What the scheduler counts for a pod: its containers together, or its largest init container if that is more."""
    total: Amounts = defaultdict(Fraction)
    sidecars: Amounts = defaultdict(Fraction)
    start: Amounts = defaultdict(Fraction)
    for container in pod.spec.containers:
        _add(total, container.resources.wanted)
    for container in pod.spec.init_containers:
        wanted = container.resources.wanted
        if is_sidecar(container):
            _add(sidecars, wanted)
            _most(start, sidecars)
        else:
            both = defaultdict(Fraction, sidecars)
            _add(both, wanted)
            _most(start, both)
    for name, amount in sidecars.items():
        total[name] += amount
    _most(total, start)
    for name, quantity in pod.spec.resources.wanted.items():
        if name.startswith(_POD_LEVEL):
            total[name] = quantity.value
    _add(total, pod.spec.overhead)
    return {name: amount for name, amount in total.items() if amount}


def is_sidecar(container: Container) -> bool:
    """Whether an init container runs as long as the pod does."""
    return container.restart_policy == "Always"


class Room:
    """What is free on each node. A node that does not say how much of a native resource it has, has enough."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._allocatable = {
            each.metadata.name: None
            if each.status.allocatable is None
            else {name: amount.value for name, amount in each.status.allocatable.items()}
            for each in nodes
        }
        self._used: dict[str, Amounts] = {}

    def provides(self, node: str, resource: str) -> bool:
        """Whether a device plugin offers an extended resource on the node."""
        return bool((self._allocatable.get(node) or {}).get(resource))

    def add(self, node: str, requests: Mapping[str, Fraction]) -> None:
        """A pod runs on the node."""
        used = self._used.setdefault(node, defaultdict(Fraction))
        used[_PODS] += 1
        for name, amount in requests.items():
            used[name] += amount

    def lacking(self, node: str, requests: Mapping[str, Fraction], elsewhere: Collection[str]) -> list[str]:
        """The resources of which there is too little for a pod, but for those it gets `elsewhere`, as devices."""
        allocatable = self._allocatable.get(node)
        used: Mapping[str, Fraction] = self._used.get(node, {})
        lacking = []
        for name, amount in {_PODS: Fraction(1), **requests}.items():
            limit = None if allocatable is None else allocatable.get(name)
            if limit is None and "/" in name:
                limit = Fraction(0)
            if name not in elsewhere and limit is not None and used.get(name, 0) + amount > limit:
                lacking.append(name)
        return lacking


def _add(total: Amounts, amounts: Mapping[str, Quantity]) -> None:
    for name, quantity in amounts.items():
        total[name] += quantity.value


def _most(total: Amounts, others: Mapping[str, Fraction]) -> None:
    for name, amount in others.items():
        total[name] = max(total[name], amount)
