"""The nodes that may still do for pods of one kind, and why the others do not.

As long as nobody gives devices back, nodes only fill up: what did not fit for one pod does not fit for the next of its
kind. So each node is turned down once for each kind of pod, not once for each pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.attempts import Attempts, Misfit
from dra_sdk.tools.scheduling.cluster.core import Node
from dra_sdk.tools.scheduling.cluster.outcome import NO_NODE
from dra_sdk.tools.scheduling.cluster.wishes import Wish

NodePair = tuple[Node, JSON]


class Contenders:
    """At first all nodes, by name; `elsewhere` are the claims by name whose devices some node could not reach."""

    def __init__(self, nodes: Mapping[str, NodePair]) -> None:
        self._open = dict(nodes)
        self._short: list[JSON] = []
        self._reasons: Counter[str] = Counter()
        self.elsewhere: dict[str, None] = {}

    def __iter__(self) -> Iterator[NodePair]:
        return iter(list(self._open.values()))

    def turn_down(self, name: str, misfit: Misfit) -> None:
        """A node does not do."""
        _, obj = self._open.pop(name)
        self.elsewhere.update(dict.fromkeys(misfit.elsewhere))
        if misfit.reason:
            self._reasons[misfit.reason] += 1
        else:
            self._short.append(obj)

    def summary(self, wish: Wish, attempts: Attempts) -> str:
        """Why there is no node left: `0 of 3 nodes: no devices for claim gpu (2); cordoned (1)`."""
        self._reasons.update(attempts.lacking(wish, node) for node in self._short)
        self._short.clear()
        if not self._reasons:
            return "there are no nodes"
        each = "; ".join(f"{reason} ({number})" for reason, number in self._reasons.most_common())
        return f"{NO_NODE}{self._reasons.total()} nodes: {each}"
