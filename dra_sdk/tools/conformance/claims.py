"""Claims of the kit's own: made, allocated as the scheduler would, remembered, and taken away after each check."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.model.claim import base_request
from dra_sdk.tools.conformance import inventory
from dra_sdk.tools.conformance.check import NotApplicable
from dra_sdk.tools.conformance.instance import Waiting
from dra_sdk.tools.conformance.inventory import Slot
from dra_sdk.tools.conformance.scheduler import match
from dra_sdk.tools.conformance.subject import Subject
from dra_sdk.tools.conformance.wanted import Wanted
from dra_sdk.tools.simulator.kubelet.records import ClaimRef

_LOOK = 0.05


@dataclass(frozen=True)
class TestClaim:
    """A claim as the API server has it; `results` are those of the driver under check."""

    __test__ = False  # not for pytest

    ref: ClaimRef
    results: tuple[JSON, ...] = ()

    @property
    def devices(self) -> set[tuple[str, str]]:
        """What was allocated, by pool and device."""
        return {(each["pool"], each["device"]) for each in self.results}

    @property
    def requests(self) -> set[str]:
        """The names of its requests, without subrequests."""
        return {base_request(each["request"]) for each in self.results}


class Claims:
    """Makes claims for one driver."""

    def __init__(self, subject: Subject, wanted: Wanted, *, sharing: bool = False) -> None:
        """`sharing` tells that others use the node's devices too, and must be kept clear of."""
        self._subject = subject
        self._site = subject.site
        self._wanted = wanted
        self._sharing = sharing
        self._numbers = count(1)
        self._awaited = False
        self._made: list[TestClaim] = []

    # -- what there is

    def slices(self) -> list[JSON]:
        """The driver's slices, once there are any and pools are whole; what there is after the patience for that."""
        name = self._subject.current.info.name
        # A driver that has not published in that time is not waited for again and again.
        waiting = Waiting(0 if self._awaited else self._subject.patience.slices)
        while not inventory.whole(found := self._site.api.slices(name)) and waiting.pause(_LOOK):
            pass
        self._awaited = not inventory.whole(found)
        return found

    def slots(self, number: int = 1, *, shared: bool | None = None) -> list[Slot]:
        """So many things that can be allocated together; NotApplicable where there are fewer.

        `shared` True wants shares of one device, False exclusive devices, None whatever there is.
        """
        found = self.free()
        if shared is not None:
            found = [slot for slot in found if slot.shared is shared]
        if shared:
            first = found[0].key if found else None
            found = [slot for slot in found if slot.key == first]
        if len(found) < number:
            what = {True: "share(s) of one device", False: "exclusive device(s)", None: "device(s)"}[shared]
            raise NotApplicable(f"needs {number} {what} that can be allocated at once, the slices have {len(found)}")
        return found[:number]

    def every_slot(self, most: int) -> list[Slot]:
        """All that can be allocated together, at most so many; NotApplicable where there is nothing."""
        return self.slots(max(1, min(most, len(self.free()))))

    def free(self) -> list[Slot]:
        """All that can be allocated together."""
        slices = self.slices()
        driver = self._subject.name
        busy = self._busy(driver) if self._sharing else set()
        return inventory.slots(
            slices,
            self._site.node,
            busy=busy,
            fits=lambda device: self._wanted.fits(device, driver),
            capacity=self._wanted.capacity,
        )

    def _busy(self, driver: str) -> set[tuple[str, str]]:
        """Devices that others' claims have."""
        found = set()
        for claim in self._others():
            allocation = (claim.get("status") or {}).get("allocation") or {}
            results = (allocation.get("devices") or {}).get("results") or ()
            found |= {(each["pool"], each["device"]) for each in results if each["driver"] == driver}
        return found

    def _others(self) -> list[JSON]:
        own = self._site.namespace
        return [each for each in self._site.api.claims() if each["metadata"]["namespace"] != own]

    # -- making them

    def make(
        self,
        slots: Sequence[Slot],
        *,
        requests: Sequence[str] = (),
        config: Iterable[JSON] = (),
        results: Iterable[JSON] = (),
        device: str = "",
        admin: bool = False,
        allocated: bool = True,
    ) -> TestClaim:
        """A claim whose n-th request has the n-th slot.

        `requests` are the names, `name` or `name/subrequest`; several slots may have the same. `config` and `results`
        are further entries of the allocation, `device` a name to put in the place of each device's.
        """
        names = list(requests) or [f"request-{index}" for index in range(len(slots))]
        created = self._site.api.create_claim(self._body(names, admin=admin))
        more = ({"device": device} if device else {}) | ({"adminAccess": True} if admin else {})
        own = [self._result(name, slot) | more for name, slot in zip(names, slots, strict=True)]
        claim = TestClaim(_ref(created), tuple(own))
        self._made.append(claim)
        if allocated:
            allocation = self._allocation([*own, *results], [*self._wanted.config, *config])
            self._site.api.update_claim_status({**created, "status": {"allocation": allocation}})
        return claim

    def one(self, slot: Slot | None = None, **fields: Any) -> TestClaim:
        """A claim for one slot, by default the first that there is."""
        return self.make([slot or self.slots()[0]], **fields)

    def scheduled(self) -> TestClaim:
        """A claim for one device, allocated by the scheduler's match; AllocationError where it finds none."""
        body = self._body(["request-0"], admin=False, config=self._wanted.claim_config, capacity=self._wanted.capacity)
        created = self._site.api.create_claim(body)
        self._made.append(TestClaim(_ref(created)))
        node = self._site.api.node(self._site.node)
        held = self._others() if self._sharing else []
        driver = self._subject.current.info.name
        allocation = match(created, node, self.slices(), wanted=self._wanted, driver=driver, held=held)
        own = [each for each in allocation["devices"]["results"] if each["driver"] == driver]
        self._site.api.update_claim_status({**created, "status": {"allocation": allocation}})
        return TestClaim(_ref(created), tuple(own))

    def absent(self) -> ClaimRef:
        """The name of a claim that does not exist."""
        return ClaimRef(self._site.namespace, self._name(), str(uuid.uuid4()))

    def delete(self, claim: TestClaim) -> None:
        """Take a claim out of the API, as after a force-deleted pod; it may still be prepared."""
        self._site.api.delete_claim(claim.ref.namespace, claim.ref.name)

    def tidy(self) -> None:
        """Unprepare and delete every claim made since the last time; what the driver answers does not matter here."""
        made, self._made = self._made, []
        try:
            if made:
                self._subject.unprepare([claim.ref for claim in made])
        finally:
            for claim in made:
                self.delete(claim)

    # -- inside

    def _name(self) -> str:
        return f"claim-{next(self._numbers)}"

    def _body(
        self,
        names: Sequence[str],
        *,
        admin: bool,
        config: Sequence[JSON] = (),
        capacity: Mapping[str, str] | None = None,
    ) -> JSON:
        requests: dict[str, JSON] = {}
        for name in names:
            base, _, sub = name.partition("/")
            target: JSON = {"deviceClassName": self._wanted.class_name}
            target |= {"adminAccess": True} if admin else {}
            target |= {"capacity": {"requests": dict(capacity)}} if capacity else {}
            if sub:
                requests[base] = {"name": base, "firstAvailable": [{"name": sub, **target}]}
            else:
                requests[base] = {"name": base, "exactly": {**target, "count": names.count(name)}}
        metadata = {"namespace": self._site.namespace, "name": self._name()}
        devices: JSON = {"requests": list(requests.values())}
        devices |= {"config": list(config)} if config else {}
        spec = {"devices": devices}
        return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}

    def _result(self, request: str, slot: Slot) -> JSON:
        result: JSON = {"request": request, "driver": self._subject.name, "pool": slot.pool, "device": slot.device}
        if slot.shared:
            result |= {"shareID": str(uuid.uuid4())}
            result |= {"consumedCapacity": dict(slot.consumed)} if slot.consumed else {}
        return result

    def _allocation(self, results: list[JSON], config: list[JSON]) -> JSON:
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self._site.node]}]}
        devices: JSON = {"results": results}
        if config:
            devices["config"] = config
        return {"devices": devices, "nodeSelector": {"nodeSelectorTerms": [term]}}


def _ref(claim: JSON) -> ClaimRef:
    metadata = claim["metadata"]
    return ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"])
