"""What scheduling a snapshot comes to: where each pod runs, and which devices each claim has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.evictions import Eviction
from dra_sdk.tools.scheduling.cluster.names import Key
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot

NO_NODE: Final = "0 of "
"""How a reason begins that counts the nodes which did not do; any other holds whatever nodes there are."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a pod runs, or in one sentence why it does not.

    `claims` are those it uses, in the order of its spec and with that for extended resources last, as far as they
    exist. `scheduled` tells that this run put it there, `running` that it was there before.
    """

    pod: Key
    node: str | None
    reason: str = ""
    claims: tuple[Key, ...] = ()
    scheduled: bool = False

    @property
    def running(self) -> bool:
        """Whether it was on its node before this run."""
        return self.node is not None and not self.scheduled


@dataclass(frozen=True, slots=True)
class ClaimOutcome:
    """The devices of a claim, or in one sentence why it has none.

    `node` is where the pods that use it run. `imagined` is set for a claim that no pod uses: a real scheduler leaves
    it alone, here it is allocated as if a pod used it that tolerates every taint, to show what it would get.
    """

    claim: Key
    allocation: JSON | None
    node: str | None = None
    reason: str = ""
    imagined: bool = False

    @property
    def results(self) -> tuple[JSON, ...]:
        """The allocated devices, as in `status.allocation.devices.results`."""
        devices: Mapping[str, Any] = (self.allocation or {}).get("devices") or {}
        return tuple(devices.get("results") or ())


@dataclass(frozen=True)
class Outcome:
    """The answer of `schedule`.

    `snapshot` is the cluster afterwards, with pods bound, claims made, allocated and reserved; `pods` and `claims`
    have one entry for each in it that is not finished, in its order. `notes` are sentences about what was not simulated
    or looks wrong.
    """

    snapshot: Snapshot
    pods: tuple[Placement, ...]
    claims: tuple[ClaimOutcome, ...]
    evicted: Mapping[Key, Eviction] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @cached_property
    def pods_by_key(self) -> Mapping[Key, Placement]:
        """The pods by namespace and name."""
        return {each.pod: each for each in self.pods}

    @cached_property
    def claims_by_key(self) -> Mapping[Key, ClaimOutcome]:
        """The claims by namespace and name."""
        return {each.claim: each for each in self.claims}

    @property
    def unplaced(self) -> tuple[Placement, ...]:
        """The pods that run nowhere."""
        return tuple(each for each in self.pods if each.node is None)

    @property
    def unallocated(self) -> tuple[ClaimOutcome, ...]:
        """The claims without a pod that cannot be had."""
        return tuple(each for each in self.claims if each.imagined and each.allocation is None)

    @property
    def complete(self) -> bool:
        """Whether every pod runs and every claim has its devices."""
        return not self.unplaced and not self.unallocated
