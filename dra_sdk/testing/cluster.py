"""The cluster around a driver under test: an API server that stores and validates objects, and a scheduler.

Both follow the real rules (`dra_sdk.wire.validation`, `dra_sdk.tools.scheduling`), but run without a server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from dra_sdk.errors import DraError, InvalidObjectError, NotFoundError
from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef, Deadline
from dra_sdk.model.device import ResourcePool
from dra_sdk.node.slices.gates import PARTITIONS
from dra_sdk.node.slices.plan import resource_slices, valid_plans
from dra_sdk.node.slices.withholding import undecided
from dra_sdk.testing.node import FakeNode
from dra_sdk.texts import shortened
from dra_sdk.tools.scheduling.cel_validation import cel_compiler
from dra_sdk.tools.scheduling.cluster import Snapshot, schedule
from dra_sdk.tools.scheduling.explain import explain, format_explanation
from dra_sdk.wire.profile import GATES, NEWEST, OLDEST, ServerProfile
from dra_sdk.wire.validation import CompileCel, Problem, sentence, title, validate
from dra_sdk.wire.validation.availability import dropped_fields
from dra_sdk.wire.validation.decoding import decoded, read_object, without_disabled
from dra_sdk.wire.validation.problems import ProblemType

RELEASES: Final = tuple(f"1.{minor}" for minor in range(OLDEST, NEWEST + 1))
_API: Final = "resource.k8s.io/v1"
_ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"
_SHOWN: Final = 10  # devices in a sentence
_NOW: Final = "2000-01-01T00:00:00Z"


class NotAllocatedError(DraError):
    """The scheduler finds no devices for a claim; the message explains why, and what would help."""


class FakeCluster:
    """The objects of a cluster with one node and one driver.

    claims: the allocated claims by UID.
    pods: pods by namespace and name; only those that a test puts here.
    """

    def __init__(self, driver: str, node: FakeNode, version: str, gates: Mapping[str, bool] | None) -> None:
        self._driver, self._node = driver, node
        self._profile = ServerProfile.of(version, gates)
        self._compile_cel = cel_compiler(self._profile)
        self._classes: dict[str, JSON] = {}
        self._status_problems: list[str] = []
        self.claims: dict[str, JSON] = {}
        self.pods: dict[tuple[str, str], JSON] = {}
        self.add_class(driver, [f'device.driver == "{driver}"'], ())

    def add_class(self, name: str, selectors: Sequence[str], config: Sequence[JSON]) -> None:
        """Create a DeviceClass; InvalidObjectError if the API server would refuse it."""
        spec: JSON = {"selectors": [{"cel": {"expression": expression}} for expression in selectors]}
        spec |= {"config": list(config)} if config else {}
        device_class = {"apiVersion": _API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        self._classes[name] = _stored(device_class, self._profile, self._compile_cel)

    def slices(self, pools: Sequence[ResourcePool]) -> list[JSON]:
        """Return the slices of these pools, as the API server stores them."""
        sent = _new_slices(pools, self._driver, self._node.name, self._profile)
        return [_stored(raw_slice, self._profile) for raw_slice in sent]

    def refused_slices(self, pools: Sequence[ResourcePool], versions: Iterable[str]) -> list[str]:
        """Return in sentences why servers of these releases, with default feature gates, refuse the slices.

        Devices that exclude each other are a problem too where the counters that say so are dropped, unless the driver
        says which of them to publish then.
        """
        refused: list[str] = []
        for version in versions:
            profile = ServerProfile.of(version)
            refused += self._undecided(pools, profile)
            # As the driver would like to have them, so that a problem can name what the server drops.
            wanted = ServerProfile.of(version, dict.fromkeys(GATES, True))
            for raw_slice in _new_slices(pools, self._driver, self._node.name, wanted):
                # A field that a server does not know is no problem, because it drops the field.
                problems = [
                    problem for problem in _checked(raw_slice, profile)[1] if problem.type is not ProblemType.UNKNOWN
                ]
                why = _dropped(raw_slice, profile) if problems else ""
                refused += [f"Kubernetes {version}: {sentence(problem, raw_slice)}{why}" for problem in problems]
        return refused

    def _undecided(self, pools: Sequence[ResourcePool], profile: ServerProfile) -> Iterator[str]:
        """Yield a sentence for each pool of which this server would get only some of the devices by chance."""
        if profile.enabled(PARTITIONS):
            return
        for planned in valid_plans(pools, driver=self._driver, node_name=self._node.name):
            if rivals := undecided(planned.slices, planned.preferences):
                first = list(dict.fromkeys(name for names in rivals.values() for name in names))
                beside = f"{shortened(list(rivals), _SHOWN)} cannot be had beside {shortened(first, _SHOWN)}"
                yield (
                    f"Kubernetes {profile.version}: pool {planned.name}: {beside}, and the server drops the counters "
                    f"that say so, because its feature gate {PARTITIONS} is off; ResourcePool.without_counters names "
                    "what is published there"
                )

    def allocate(self, claim: JSON, pools: Sequence[ResourcePool]) -> JSON:
        """Return the claim with the devices that the scheduler chooses; NotAllocatedError if there are none."""
        metadata = claim["metadata"]
        if metadata["uid"] in self.claims:
            return self.claims[metadata["uid"]]
        created = _stored(claim, self._profile, self._compile_cel)
        snapshot = self._snapshot(created, pools)
        outcome = schedule(snapshot).claims_by_key[metadata["namespace"], metadata["name"]]
        if outcome.allocation is None:
            raise NotAllocatedError(
                format_explanation(explain(snapshot, f"{metadata['namespace']}/{metadata['name']}"))
            )
        return self.adopt({**created, "status": {"allocation": outcome.allocation}})

    def adopt(self, claim: JSON) -> JSON:
        """Add a claim that is already allocated."""
        self.claims[claim["metadata"]["uid"]] = claim
        return claim

    def read_pod(self, namespace: str, name: str, _deadline: Deadline) -> JSON:
        """Return a pod; NotFoundError if there is none."""
        if (namespace, name) not in self.pods:
            raise NotFoundError(f"pods {namespace}/{name} not found", status=404)
        return self.pods[namespace, name]

    def write_device_status(self, ref: ClaimRef, statuses: Sequence[JSON]) -> None:
        """Write a claim's `status.devices`, as the driver reports it; `check_device_status` raises the problems."""
        claim = self.claims.get(ref.uid)
        if claim is None:
            return
        status = {**claim["status"], "devices": [dict(device_status) for device_status in statuses]}
        written = {**claim, "metadata": {**claim["metadata"], "resourceVersion": "1"}, "status": status}
        problems = validate(written, old=claim, profile=self._profile, subresource="status")
        self._status_problems += [sentence(problem, written) for problem in problems]
        self.claims[ref.uid] = {**claim, "status": status}

    def check_device_status(self) -> None:
        """Raise AssertionError if the API server would refuse a reported device status."""
        problems, self._status_problems = self._status_problems, []
        if problems:
            raise AssertionError(f"driver {self._driver} reports a device status that no server accepts: {problems}")

    def _snapshot(self, claim: JSON, pools: Sequence[ResourcePool]) -> Snapshot:
        node, namespace = self._node, claim["metadata"]["namespace"]
        metadata = {"name": node.name, "uid": f"{node.name}-uid", "labels": dict(node.labels)}
        labels = {_ADMIN_ACCESS: "true"}
        return Snapshot(
            nodes=({"apiVersion": "v1", "kind": "Node", "metadata": metadata},),
            slices=tuple(self.slices(pools)),
            classes=tuple(self._classes.values()),
            claims=(*self.claims.values(), claim),
            namespaces=({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}},),
            profile=self._profile,
        )


def _new_slices(pools: Iterable[ResourcePool], driver: str, node: str, profile: ServerProfile) -> list[JSON]:
    """Return the slices that a driver publishes to such a server; InvalidObjectError if they cannot be published."""
    slices = []
    for number, made in enumerate(resource_slices(pools, driver=driver, node_name=node, server=profile)):
        metadata = {**made["metadata"]}
        metadata["name"] = f"{metadata.pop('generateName')}{number}"
        slices.append({**made, "metadata": metadata})
    return slices


def _stored(obj: Mapping[str, Any], profile: ServerProfile, compile_cel: CompileCel | None = None) -> JSON:
    """Return an object as a server stores it.

    InvalidObjectError with a sentence for each problem if the server would refuse the object or does not know a field.
    """
    kept, problems = _checked(obj, profile, compile_cel)
    if problems:
        raise InvalidObjectError(title(obj), [sentence(problem, obj) for problem in problems])
    return kept


def _dropped(obj: Mapping[str, Any], profile: ServerProfile) -> str:
    """Return which feature gates are off for fields of an object, each with one of the fields: rules may need it."""
    known, _ = read_object(obj, profile)
    fields = {dropped.gates: dropped.field for dropped in dropped_fields(known, profile)} if known else {}
    return "".join(
        f"; it drops {field}, because feature gate {' and '.join(gates)} is off" for gates, field in fields.items()
    )


def _checked(
    obj: Mapping[str, Any], profile: ServerProfile, compile_cel: CompileCel | None = None
) -> tuple[JSON, list[Problem]]:
    """Return an object with defaults and without the fields that a server drops, and its problems."""
    known, problems = decoded(obj, profile, _NOW)
    kept = without_disabled(known or obj, None, profile)
    return kept, [*problems, *(validate(kept, profile=profile, compile_cel=compile_cel) if known else ())]
