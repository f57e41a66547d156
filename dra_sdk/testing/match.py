"""The API server's and the scheduler's part of a test: storing slices, classes and claims, and matching them.

By the real match (`dra_sdk.tools.scheduling`) and the real limits (`dra_sdk.wire.validation`), without a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dra_sdk.errors import DraError
from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef
from dra_sdk.model.device import ResourcePool
from dra_sdk.testing.node import FakeNode
from dra_sdk.testing.publishing import fresh_slices, stored
from dra_sdk.tools.scheduling.cel_validation import cel_compiler
from dra_sdk.tools.scheduling.cluster import Snapshot, schedule
from dra_sdk.tools.scheduling.explain import explain, format_explanation
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import sentence, validate

ADMIN_ACCESS = "resource.kubernetes.io/admin-access"
_API = "resource.k8s.io/v1"


class NotAllocatedError(DraError):
    """A claim cannot have its devices on the node; the message explains why, and what would help."""


class Match:
    """The objects of a cluster with one node. `claims` are those that are allocated, by UID."""

    def __init__(self, driver: str, node: FakeNode, version: str, gates: Mapping[str, bool] | None) -> None:
        self._driver, self._node = driver, node
        self._profile = ServerProfile.of(version, gates)
        self._compile_cel = cel_compiler(self._profile)
        self._classes: dict[str, JSON] = {}
        self._problems: list[str] = []
        self.claims: dict[str, JSON] = {}
        self.add_class(driver, [f'device.driver == "{driver}"'], ())

    def add_class(self, name: str, selectors: Sequence[str], config: Sequence[JSON]) -> None:
        """A DeviceClass; InvalidObjectError where the API server would refuse it."""
        spec: JSON = {"selectors": [{"cel": {"expression": expression}} for expression in selectors]}
        spec |= {"config": list(config)} if config else {}
        made = {"apiVersion": _API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        self._classes[name] = stored(made, self._profile, self._compile_cel)

    def slices(self, pools: Sequence[ResourcePool]) -> list[JSON]:
        """The slices of these pools, as the API server stores them."""
        sent = fresh_slices(pools, self._driver, self._node.name, self._profile)
        return [stored(each, self._profile) for each in sent]

    def allocate(self, claim: JSON, pools: Sequence[ResourcePool]) -> JSON:
        """The claim with the devices that the scheduler gives it; NotAllocatedError if it gives none."""
        metadata = claim["metadata"]
        if metadata["uid"] in self.claims:
            return self.claims[metadata["uid"]]
        asked = stored(claim, self._profile, self._compile_cel)
        snapshot = self._snapshot(asked, pools)
        found = schedule(snapshot).claims_by_key[metadata["namespace"], metadata["name"]]
        if found.allocation is None:
            raise NotAllocatedError(
                format_explanation(explain(snapshot, f"{metadata['namespace']}/{metadata['name']}"))
            )
        return self.adopt({**asked, "status": {"allocation": found.allocation}})

    def adopt(self, claim: JSON) -> JSON:
        """Takes a claim as allocated already, by whomever."""
        self.claims[claim["metadata"]["uid"]] = claim
        return claim

    def announce(self, ref: ClaimRef, statuses: Sequence[JSON]) -> None:
        """What the driver says of a claim's devices, into `status.devices`; `check_statuses` tells what is wrong."""
        claim = self.claims.get(ref.uid)
        if claim is None:
            return
        status = {**claim["status"], "devices": [dict(each) for each in statuses]}
        said = {**claim, "metadata": {**claim["metadata"], "resourceVersion": "1"}, "status": status}
        found = validate(said, old=claim, profile=self._profile, subresource="status")
        self._problems += [sentence(each, said) for each in found]
        self.claims[ref.uid] = {**claim, "status": status}

    def check_statuses(self) -> None:
        """AssertionError if the API server would refuse what the driver said of devices."""
        problems, self._problems = self._problems, []
        if problems:
            raise AssertionError(f"driver {self._driver} reports a device status that no server takes: {problems}")

    def _snapshot(self, claim: JSON, pools: Sequence[ResourcePool]) -> Snapshot:
        node, namespace = self._node, claim["metadata"]["namespace"]
        metadata = {"name": node.name, "uid": f"{node.name}-uid", "labels": dict(node.labels)}
        labels = {ADMIN_ACCESS: "true"}
        return Snapshot(
            nodes=({"apiVersion": "v1", "kind": "Node", "metadata": metadata},),
            slices=tuple(self.slices(pools)),
            classes=tuple(self._classes.values()),
            claims=(*self.claims.values(), claim),
            namespaces=({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}},),
            profile=self._profile,
        )
