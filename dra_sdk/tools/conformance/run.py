"""What a check is given: the driver, claims for it, and the places to look at. Steps that many checks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dra_sdk.model import JSON
from dra_sdk.tools.conformance.api import Api
from dra_sdk.tools.conformance.cdi import Cdi
from dra_sdk.tools.conformance.check import CheckFailed, NotApplicable
from dra_sdk.tools.conformance.claims import Claims, TestClaim
from dra_sdk.tools.conformance.instance import Instance, Waiting
from dra_sdk.tools.conformance.plugin import ClaimsAnswer, Entry
from dra_sdk.tools.conformance.site import Site
from dra_sdk.tools.conformance.subject import Patience, Subject
from dra_sdk.tools.conformance.wanted import Wanted

SETTLED = 0.3
"""Seconds without a change after which slices count as settled."""


@dataclass
class Run:
    """One run of the kit against one driver."""

    subject: Subject
    wanted: Wanted = field(default_factory=Wanted)
    sharing: bool = False
    """Whether others use the node's devices too."""
    disruptive: bool = False
    """Whether a driver that runs already may be disturbed."""
    claims_held: int = 50
    """How many claims the load level prepares at most."""

    def __post_init__(self) -> None:
        self.site: Site = self.subject.site
        self.api: Api = self.site.api
        self.patience: Patience = self.subject.patience
        self.claims = Claims(self.subject, self.wanted, sharing=self.sharing)
        self.cdi = Cdi(self.site.cdi_dirs, self.site.host_root)

    @property
    def driver(self) -> Instance:
        """The instance that runs now."""
        return self.subject.current

    def start(self) -> Instance:
        """Have the driver run; the same as `driver`."""
        return self.subject.start()

    # -- slices

    def settled_slices(self) -> list[JSON]:
        """The driver's slices once they no longer change, as when it has just started."""
        waiting = Waiting(self.patience.slices)
        found: list[JSON] = []
        while (now := self.claims.slices()) != found and waiting.pause(SETTLED):
            found = now
        return now

    # -- calls that must go well

    def prepared(self, *claims: TestClaim, version: str = "") -> dict[str, Entry]:
        """Prepare claims in one call, as the kubelet accepts it; the entries by UID."""
        return accepted(self.subject.prepare([claim.ref for claim in claims], version), claims)

    def prepared_one(self, claim: TestClaim, version: str = "") -> Entry:
        """Prepare one claim; its entry."""
        return self.prepared(claim, version=version)[claim.ref.uid]

    def unprepared(self, *claims: TestClaim) -> None:
        """Unprepare claims in one call, as the kubelet accepts it."""
        accepted(self.subject.unprepare([claim.ref for claim in claims]), claims)

    def refused(self, claim: TestClaim, why: str) -> None:
        """Prepare a claim that must not be prepared."""
        answer = self.subject.prepare([claim.ref])
        if not answer.refuses(claim.ref):
            raise CheckFailed(why, entry=entries_json(answer.entries))

    # -- CDI

    def with_cdi(self, entry: Entry) -> tuple[str, ...]:
        """The entry's CDI ids; NotApplicable where it has none."""
        if not entry.cdi_ids:
            raise NotApplicable("the driver answers without CDI devices")
        return entry.cdi_ids

    def specs(self) -> list[Path]:
        """The spec files there are now, with those that the driver writes as it starts."""
        self.start()
        return self.cdi.paths()

    def new_specs(self, before: Sequence[Path]) -> list[Path]:
        """The spec files that were not there before."""
        return [path for path in self.cdi.paths() if path not in before]

    def nothing_left(self, before: Sequence[Path], after: str) -> None:
        """CDI specs that came meanwhile must be gone again, now or very soon."""
        waiting = Waiting(self.patience.settle)
        while (left := self.new_specs(before)) and waiting.pause():
            pass
        if left:
            raise CheckFailed(f"{after}, CDI specs are left: {', '.join(path.name for path in left)}")


def accepted(answer: ClaimsAnswer, claims: Sequence[TestClaim]) -> dict[str, Entry]:
    """The entries of an answer that the kubelet accepts; else CheckFailed with the kubelet's reason."""
    if problem := answer.problem([claim.ref for claim in claims]):
        raise CheckFailed(problem)
    return answer.entries


def entries_json(entries: dict[str, Entry]) -> dict[str, object]:
    """Entries for evidence."""
    return {
        uid: {"error": entry.error, "devices": [f"{each.pool}/{each.device}" for each in entry.devices]}
        for uid, entry in entries.items()
    }
