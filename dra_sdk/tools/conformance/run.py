"""One run of the kit: what each check gets, and the steps that many checks have in common."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dra_sdk.errors import DraError
from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef
from dra_sdk.tools.conformance.cdi import CdiView
from dra_sdk.tools.conformance.claim_template import ClaimTemplate
from dra_sdk.tools.conformance.claims import Claims, TestClaim
from dra_sdk.tools.conformance.driver_under_test import DriverUnderTest, Instance
from dra_sdk.tools.conformance.environment import KitClient, NodeEnvironment
from dra_sdk.tools.conformance.nri_node import NEWEST, NriNode
from dra_sdk.tools.conformance.outcomes import CheckFailedError, NotApplicableError, expect
from dra_sdk.tools.conformance.timeouts import Timeouts, poll, wait_until
from dra_sdk.tools.simulator.kubelet.calls import ClaimResponse, ClaimsResponse

UNKNOWN_FIELD: Final = bytes([0xFA, 0x3F, 3]) + b"new"
"""A message with field 1023, length-delimited."""
SETTLED: Final = 0.3
"""Slices that have not changed for so many seconds are settled."""
_INTERVAL: Final = 0.1


@dataclass
class Run:
    """One run against one driver.

    driver: the driver under test.
    template: what claims request.
    shared_node: whether other claims use the node's devices.
    disruptive: whether the kit may disturb a driver that it did not start.
    max_claims: the most claims that the load level prepares at once.
    nri: the container runtime for the driver's NRI plugin; None if it is not said to be one.
    """

    driver: DriverUnderTest
    template: ClaimTemplate = field(default_factory=ClaimTemplate)
    shared_node: bool = False
    disruptive: bool = False
    max_claims: int = 50
    nri: NriNode | None = None

    def __post_init__(self) -> None:
        self.environment: NodeEnvironment = self.driver.environment
        self.api: KitClient = self.environment.api
        self.claims = Claims(self.driver, self.template, shared_node=self.shared_node)
        self.cdi = CdiView(self.environment.cdi_dirs, self.environment.host_root, self.environment.kubelet_dir)

    @property
    def timeouts(self) -> Timeouts:
        """How long the kit waits."""
        return self.driver.timeouts

    @property
    def instance(self) -> Instance:
        """The running instance, which is started if necessary."""
        return self.driver.start()

    # -- calls that must succeed, or fail

    def prepare(self, *claims: TestClaim) -> dict[str, ClaimResponse]:
        """Prepare claims in one call, which must succeed for the kubelet; return the entries by UID."""
        return accepted(self.driver.prepare([claim.ref for claim in claims]), claims)

    def prepared(self, claim: TestClaim | None = None) -> TestClaim:
        """Prepare a claim, by default one for the first free device; return it."""
        claim = claim or self.claims.create_one()
        self.prepare(claim)
        return claim

    def prepare_one(self, claim: TestClaim, version: str = "") -> ClaimResponse:
        """Prepare one claim, which must succeed for the kubelet; return its entry."""
        return accepted(self.driver.prepare([claim.ref], version), [claim])[claim.ref.uid]

    def unprepare(self, *claims: TestClaim) -> None:
        """Unprepare claims in one call, which must succeed for the kubelet."""
        accepted(self.driver.unprepare([claim.ref for claim in claims]), claims)

    def expect_refused(self, ref: ClaimRef, reason: str, *others: ClaimRef) -> None:
        """Prepare a claim, in one call with others, which must fail; `reason` is what the report says otherwise."""
        answer = self.driver.prepare([*others, ref])
        expect(answer.refuses(ref), reason, entries=answer.encoded())

    # -- slices

    def settled_slices(self) -> list[JSON]:
        """Return the driver's slices once they no longer change; empty if it publishes none."""
        slices: list[JSON] = []

        def unchanged() -> bool:
            before = list(slices)
            slices[:] = self.claims.slices()
            return slices == before

        wait_until(unchanged, self.timeouts.slices, SETTLED)
        return slices

    def published_slices(self) -> list[JSON]:
        """Return the settled slices; NotApplicableError if there are none."""
        slices = self.settled_slices()
        if not slices:
            raise NotApplicableError("the driver publishes no ResourceSlice")
        return slices

    def expect_unchanged_slices(self, driver: str, before: list[JSON], reason: str, seconds: float) -> None:
        """Watch the slices of a driver, which must stay as `before`."""
        for _ in poll(seconds, _INTERVAL):
            after = slice_versions(self.api.slices(driver))
            expect(after == before, reason, before=before, after=after)

    # -- CDI

    def cdi_ids(self, entry: ClaimResponse) -> tuple[str, ...]:
        """Return the CDI IDs of a prepared claim; NotApplicableError if it has none."""
        if not entry.cdi_ids:
            raise NotApplicableError("the driver answers without CDI devices")
        return entry.cdi_ids

    def spec_files(self) -> list[Path]:
        """Return the CDI spec files, with those that the driver writes when it starts."""
        self.driver.start()
        return self.cdi.paths()

    def new_spec_files(self, before: Sequence[Path]) -> list[Path]:
        """Return the CDI spec files that were not there `before`; NotApplicableError if there are none."""
        written = [path for path in self.cdi.paths() if path not in before]
        if not written:
            raise NotApplicableError("preparing a claim writes no spec of its own")
        return written

    def expect_defined(self, cdi_ids: Sequence[str], when: str = "") -> None:
        """Expect a spec to define every CDI ID; `when` completes the reason in the report."""
        missing = self.cdi.unresolved(cdi_ids)
        expect(not missing, f"no spec defines {', '.join(missing)}{when and ' '}{when}")

    def expect_specs_removed(self, before: Sequence[Path], when: str) -> None:
        """Expect that the CDI specs since `before` are removed within the settle timeout."""

        def left() -> list[Path]:
            return [path for path in self.cdi.paths() if path not in before]

        wait_until(lambda: not left(), self.timeouts.settle)
        names = ", ".join(path.name for path in left())
        expect(not names, f"{when}, CDI specs remain: {names}")

    def container(self, cdi_ids: Sequence[str]) -> JSON:
        """Return the OCI spec of an empty container with these devices; fails if a runtime could not create it."""
        try:
            return self.cdi.container(cdi_ids)
        except (DraError, OSError) as error:
            raise CheckFailedError(f"a container runtime cannot apply {', '.join(cdi_ids)}: {error}") from error

    # -- NRI

    def nri_node(self) -> NriNode:
        """Return the container runtime of an NRI plugin; NotApplicableError if the driver is not said to be one."""
        if self.nri is None:
            raise NotApplicableError("the driver counts as an NRI plugin only with --nri")
        return self.nri

    def connected_node(self, nri_version: str = NEWEST, **options: Any) -> NriNode:
        """Return a new runtime, with which the plugin is synchronized; options as for `NriNode.start`."""
        node = self.nri_node()
        node.start(nri_version, **options)
        node.connect()
        return node

    def prepared_edits(self) -> tuple[TestClaim, JSON]:
        """Return a prepared claim, and the OCI spec of an empty container with its CDI devices."""
        claim = self.claims.create_one()
        return claim, self.container(self.cdi_ids(self.prepare_one(claim)))


@contextmanager
def placed_files(contents: Mapping[Path, bytes]) -> Iterator[None]:
    """Write files, and remove them at the end of the context."""
    try:
        for path, content in contents.items():
            path.write_bytes(content)
        yield
    finally:
        for path in contents:
            path.unlink(missing_ok=True)


def accepted(answer: ClaimsResponse, claims: Sequence[TestClaim]) -> dict[str, ClaimResponse]:
    """Return the entries of an answer that the kubelet accepts; else CheckFailedError with the kubelet's reason."""
    if problem := answer.problem([claim.ref for claim in claims]):
        raise CheckFailedError(problem)
    return answer.claims


def slice_versions(slices: list[JSON]) -> list[JSON]:
    """Return name, UID and version of slices."""
    keys = ("name", "uid", "resourceVersion")
    return [{key: raw_slice["metadata"].get(key) for key in keys} for raw_slice in slices]
