"""The claims of the kit: created and allocated for each check, and removed after it."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from dra_sdk.kube import paths
from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef, base_request
from dra_sdk.tools.conformance.allocatable import AllocatableDevice, DeviceKey, allocatable_devices, pools_complete
from dra_sdk.tools.conformance.claim_template import ClaimTemplate
from dra_sdk.tools.conformance.driver_under_test import DriverUnderTest
from dra_sdk.tools.conformance.outcomes import NotApplicableError
from dra_sdk.tools.conformance.timeouts import wait_until
from dra_sdk.tools.scheduling.allocator import AllocatedState, AllocationError, Allocator, Inventory

_INTERVAL: Final = 0.05


@dataclass(frozen=True)
class TestClaim:
    """A claim in the API server.

    ref: namespace, name and UID.
    results: the allocation results of the driver under test.
    """

    __test__ = False  # pytest would collect it for its name

    ref: ClaimRef
    results: tuple[JSON, ...] = ()

    @property
    def devices(self) -> set[DeviceKey]:
        """The allocated devices."""
        return {(result["pool"], result["device"]) for result in self.results}

    @property
    def requests(self) -> set[str]:
        """The names of its allocated requests, without subrequests."""
        return {base_request(result["request"]) for result in self.results}


class Claims:
    """Creates claims for one driver."""

    def __init__(self, driver: DriverUnderTest, template: ClaimTemplate, *, shared_node: bool = False) -> None:
        """`shared_node` says that other claims use the node's devices; these devices are left alone."""
        self._driver = driver
        self._environment = driver.environment
        self._api = driver.environment.api
        self._template = template
        self._shared_node = shared_node
        self._numbers = count(1)
        self._never_published = False
        self._created: list[TestClaim] = []

    # -- devices

    def slices(self) -> list[JSON]:
        """Return the driver's slices, as soon as all pools are complete, or as they are after the timeout."""
        name = self._driver.start().info.name
        # After one timeout the next checks do not wait again.
        seconds = 0.0 if self._never_published else self._driver.timeouts.slices
        slices: list[JSON] = []

        def complete() -> bool:
            slices[:] = self._api.slices(name)
            return pools_complete(slices)

        self._never_published = not wait_until(complete, seconds, _INTERVAL)
        return slices

    def free_devices(self, *, shared: bool | None = None) -> list[AllocatableDevice]:
        """Return everything that can be allocated at the same time; `shared` as for `pick`.

        A device and its shares may consume the same counters, so what is not asked for must not take them.
        """
        slices = self.slices()
        driver = self._driver.name
        return allocatable_devices(
            slices,
            self._environment.node_name,
            held=self._held_devices(driver),
            fits=lambda device: (
                shared in {None, bool(device.get("allowMultipleAllocations"))} and self._template.fits(device, driver)
            ),
            capacity=self._template.capacity,
        )

    def pick(self, number: int, *, shared: bool | None = None) -> list[AllocatableDevice]:
        """Return so many of the free devices; NotApplicableError if there are fewer.

        `shared` True means shares of one device, False devices for one claim only, None any.
        """
        free = self.free_devices(shared=shared)
        if shared and free:
            ((most, _),) = Counter(device.key for device in free).most_common(1)
            free = [device for device in free if device.key == most]
        if len(free) < number:
            what = {True: "share(s) of one device", False: "device(s) for one claim only", None: "device(s)"}[shared]
            raise NotApplicableError(
                f"needs {number} {what} that can be allocated at the same time, the slices have {len(free)}"
            )
        return free[:number]

    def pick_one(self, *, shared: bool | None = None) -> AllocatableDevice:
        """Return the first of the free devices; NotApplicableError if there is none."""
        return self.pick(1, shared=shared)[0]

    def pick_at_most(self, number: int) -> list[AllocatableDevice]:
        """Return all free devices up to a number; NotApplicableError if there is none."""
        return self.pick(max(1, min(number, len(self.free_devices()))))

    def _held_devices(self, driver: str) -> set[DeviceKey]:
        held = set()
        for claim in self._foreign_claims():
            allocation = (claim.get("status") or {}).get("allocation") or {}
            results = (allocation.get("devices") or {}).get("results") or ()
            held |= {(result["pool"], result["device"]) for result in results if result["driver"] == driver}
        return held

    def _foreign_claims(self) -> list[JSON]:
        """Return the claims that the kit did not create; none on a node that is not shared."""
        if not self._shared_node:
            return []
        own = self._environment.namespace
        claims = self._api.client.list(paths.resource_claims())["items"]
        return [claim for claim in claims if claim["metadata"]["namespace"] != own]

    # -- creating claims

    def create(
        self,
        devices: Sequence[AllocatableDevice],
        *,
        requests: Sequence[str] = (),
        config: Iterable[JSON] = (),
        results: Iterable[JSON] = (),
        device_name: str = "",
        admin: bool = False,
        allocated: bool = True,
    ) -> TestClaim:
        """Return a claim whose n-th request has the n-th device.

        `requests` are the names, `name` or `name/subrequest`; several devices may have the same one. `config` and
        `results` are additional entries of the allocation. `device_name` replaces the name of each device.
        """
        names = list(requests) or [f"request-{index}" for index in range(len(devices))]
        stored = self._store(self._claim(names, admin=admin))
        changes = ({"device": device_name} if device_name else {}) | ({"adminAccess": True} if admin else {})
        own = [self._result(name, device) | changes for name, device in zip(names, devices, strict=True)]
        claim = TestClaim(_ref(stored), tuple(own))
        self._created.append(claim)
        if allocated:
            allocation = self._allocation([*own, *results], [*self._template.config, *config])
            self._write_allocation(stored, allocation)
        return claim

    def create_one(self, device: AllocatableDevice | None = None, **options: Any) -> TestClaim:
        """Return a claim for one device, by default the first free one; options as for `create`."""
        return self.create([device or self.pick_one()], **options)

    def create_scheduled(self) -> TestClaim:
        """Return a claim for one device that kube-scheduler's allocator chooses; AllocationError if it finds none.

        NotApplicableError if it would find one on this node without the claims of others.
        """
        template = self._template
        body = self._claim(["request-0"], admin=False, config=template.claim_config, capacity=template.capacity)
        stored = self._store(body)
        self._created.append(TestClaim(_ref(stored)))
        allocation = self._allocate(stored)
        own = [result for result in allocation["devices"]["results"] if result["driver"] == self._driver.name]
        self._write_allocation(stored, allocation)
        return TestClaim(_ref(stored), tuple(own))

    def missing_ref(self) -> ClaimRef:
        """Return namespace, name and UID of a claim that does not exist."""
        return ClaimRef(self._environment.namespace, self._next_name(), str(uuid.uuid4()))

    def delete(self, claim: TestClaim) -> None:
        """Delete a claim from the API server, as for a force-deleted pod; the driver may still hold its devices."""
        self._api.delete(paths.resource_claim(claim.ref.namespace, claim.ref.name))

    def clean_up(self) -> None:
        """Unprepare and delete all claims since the last call; errors of the driver are ignored."""
        created, self._created = self._created, []
        try:
            if created:
                self._driver.unprepare([claim.ref for claim in created])
        finally:
            for claim in created:
                self.delete(claim)

    # -- inside

    def _store(self, claim: JSON) -> JSON:
        return self._api.client.create(paths.resource_claims(self._environment.namespace), claim)

    def _write_allocation(self, claim: JSON, allocation: JSON) -> None:
        path = paths.resource_claim_status(self._environment.namespace, claim["metadata"]["name"])
        self._api.client.update(path, {**claim, "status": {"allocation": allocation}})

    def _allocate(self, claim: JSON) -> JSON:
        """Return the `status.allocation` that kube-scheduler would write."""
        slices, driver = self.slices(), self._driver.name
        node = self._api.client.get(paths.node(self._environment.node_name))
        classes = {self._template.device_class_name: self._template.device_class(driver)}
        allocator, foreign = Allocator(Inventory(slices), classes), self._foreign_claims()
        allocations = allocator.allocate(node, [claim], AllocatedState.of(foreign))
        if allocations is None:
            if foreign and allocator.allocate(node, [claim], AllocatedState.of([])) is not None:
                raise NotApplicableError("needs a device that no other claim has; those of other namespaces have all")
            raise AllocationError("no device in the driver's slices can be allocated on the node")
        return allocations[0]

    def _next_name(self) -> str:
        return f"claim-{next(self._numbers)}"

    def _claim(
        self,
        names: Sequence[str],
        *,
        admin: bool,
        config: Sequence[JSON] = (),
        capacity: Mapping[str, str] | None = None,
    ) -> JSON:
        requests: dict[str, JSON] = {}
        for name in names:
            base, _, subrequest = name.partition("/")
            target: JSON = {"deviceClassName": self._template.device_class_name}
            target |= {"adminAccess": True} if admin else {}
            target |= {"capacity": {"requests": dict(capacity)}} if capacity else {}
            if subrequest:
                requests[base] = {"name": base, "firstAvailable": [{"name": subrequest, **target}]}
            else:
                requests[base] = {"name": base, "exactly": {**target, "count": names.count(name)}}
        metadata = {"namespace": self._environment.namespace, "name": self._next_name()}
        devices: JSON = {"requests": list(requests.values())}
        devices |= {"config": list(config)} if config else {}
        spec = {"devices": devices}
        return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}

    def _result(self, request: str, device: AllocatableDevice) -> JSON:
        result: JSON = {"request": request, "driver": self._driver.name, "pool": device.pool, "device": device.device}
        if device.shared:
            result |= {"shareID": str(uuid.uuid4())}
            result |= {"consumedCapacity": dict(device.consumed)} if device.consumed else {}
        return result

    def _allocation(self, results: list[JSON], config: list[JSON]) -> JSON:
        values = [self._environment.node_name]
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": values}]}
        devices: JSON = {"results": results}
        if config:
            devices["config"] = config
        return {"devices": devices, "nodeSelector": {"nodeSelectorTerms": [term]}}


def _ref(claim: JSON) -> ClaimRef:
    metadata = claim["metadata"]
    return ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"])
