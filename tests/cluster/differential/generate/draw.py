"""Random choices, and the features that a case is about."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, TypeVar

T = TypeVar("T")

#: How often a case is about each feature. Most cases have two or three, so that features meet.
FEATURES: Final = {
    "admin": 0.12,
    "all": 0.3,
    "all-nodes": 0.04,
    "alternatives": 0.35,
    "binding": 0.08,
    "bound-to-node": 0.06,
    "broken-cel": 0.12,
    "config": 0.3,
    "constraints": 0.35,
    "counters": 0.28,
    "foreign-pool-name": 0.06,
    "extended": 0.12,
    "incomplete": 0.12,
    "invalid-pool": 0.07,
    "lists": 0.1,
    "missing-class": 0.04,
    "no-driver-check": 0.04,
    "obsolete": 0.12,
    "per-device": 0.2,
    "rules": 0.12,
    "shared-claim": 0.2,
    "shares": 0.3,
    "spoilt": 0.18,
    "taints": 0.25,
    "templates": 0.12,
    "two-drivers": 0.35,
    "zones": 0.2,
}
#: The same for what 1.37 brought; older servers do not know the fields.
NEWER: Final = {
    "derived": 0.12,
    "groups": 0.1,
    "skipped-operations": 0.08,
}


class Draw:
    """Random choices for one case; `newer` is for servers since 1.37."""

    def __init__(self, seed: int | str, index: int, *, newer: bool = False) -> None:
        self.random = random.Random(f"{seed}/{index}")
        possible = {**FEATURES, **NEWER} if newer else FEATURES
        self.features = frozenset(name for name, often in possible.items() if self.random.random() < often)

    def has(self, feature: str, often: float = 1.0) -> bool:
        """Returns whether the case is about a feature and uses it here, which is so once in `1 / often` times."""
        assert feature in FEATURES or feature in NEWER, feature
        return feature in self.features and self.random.random() < often

    def chance(self, often: float) -> bool:
        """Returns True with this probability."""
        return self.random.random() < often

    def one(self, *items: T) -> T:
        """Returns one of them."""
        return self.random.choice(items)

    def some(self, items: Sequence[T], least: int = 1, most: int | None = None) -> list[T]:
        """Returns some of them, in their order."""
        count = self.random.randint(least, max(least, min(len(items), len(items) if most is None else most)))
        places = sorted(self.random.sample(range(len(items)), min(count, len(items))))
        return [items[place] for place in places]

    def number(self, least: int, most: int) -> int:
        """Returns a number from `least` to `most`."""
        return self.random.randint(least, most)

    def shuffled(self, items: Sequence[T]) -> list[T]:
        """Returns all of them in random order."""
        return self.random.sample(items, len(items))
