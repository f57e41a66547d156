"""Pods with priorities, on the real scheduler and in the simulator: which pods are evicted, and where the pod runs.

A case has nodes of its own with pods that run there, some with devices and some under a PodDisruptionBudget; then pods
of other priorities come, one after the other. The simulator gets the cluster as it is before each of them. No claim
controller runs, so the claims of evicted pods stay, for both.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from dra_sdk.tools.scheduling.cluster import Snapshot, schedule
from dra_sdk.wire.profile import ServerProfile
from tests.cluster.differential.api import Refusal
from tests.cluster.differential.case import JSON, PLAIN, PodPlan
from tests.cluster.differential.real import RealCluster, pod_object
from tests.cluster.harness.errors import HarnessError

DRIVER: Final = "preemption.example.com"
PRIORITIES: Final = (-5, 0, 1, 5, 10)
TEMPLATE: Final = "one-device"
_NEVER: Final = "never"
_LIMIT: Final = 60.0
"""Seconds for a pod that others were evicted for to get its node."""


def common_objects() -> list[JSON]:
    """Returns what all cases use: PriorityClasses, a DeviceClass and a claim template."""
    classes = [_priority_class(priority_name(value), value) for value in PRIORITIES]
    shy = _priority_class(_NEVER, max(PRIORITIES)) | {"preemptionPolicy": "Never"}
    device_class = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": DRIVER},
        "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
    }
    requests = [{"name": "one", "exactly": {"deviceClassName": DRIVER}}]
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": TEMPLATE, "namespace": PLAIN},
        "spec": {"spec": {"devices": {"requests": requests}}},
    }
    return [*classes, shy, device_class, template]


def _priority_class(name: str, value: int) -> JSON:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def priority_name(value: int) -> str:
    """Returns the name of the class of a priority."""
    return f"priority-{value}" if value >= 0 else f"priority-minus-{-value}"


@dataclass(frozen=True)
class Resident:
    """A pod that runs before: its plan, its node and when it started."""

    plan: PodPlan
    node: str
    started: str


@dataclass(frozen=True)
class PreemptionCase:
    """A case: objects to create, pods that run, and pods that come."""

    name: str
    objects: tuple[JSON, ...]
    residents: tuple[Resident, ...]
    newcomers: tuple[PodPlan, ...]

    @property
    def nodes(self) -> list[str]:
        """Returns the names of its nodes."""
        return [each["metadata"]["name"] for each in self.objects if each["kind"] == "Node"]


def draw_preemption(seed: str, number: int) -> PreemptionCase:
    """Draws a case; the same one for the same arguments."""
    chance = random.Random(f"{seed}-{number}")
    name = f"p{number:04}"
    objects: list[JSON] = []
    residents: list[Resident] = []
    for index in range(chance.randint(1, 3)):
        node, cpus, devices = f"{name}-n{index}", chance.randint(3, 6), chance.randint(0, 3)
        objects.append(_node(node, cpus, chance.choice((2, 3, 10))))
        if devices:
            objects.append(_slice(node, devices))
        residents += _residents(chance, name, objects[-1 - bool(devices)], devices, len(residents))
    groups = range(chance.randint(0, 2))
    objects += [
        _budget(f"{name}-b{each}", {"case": name, "group": str(each)}, chance.choice((0, 0, 1))) for each in groups
    ]
    newcomers = tuple(
        _plan(chance, f"{name}-new{index}", chance.randint(0, 6), chance.random() < 0.3, {}, newcomer=True)
        for index in range(2)
    )
    return PreemptionCase(name, tuple(objects), tuple(residents), newcomers)


def _residents(chance: random.Random, case: str, node: JSON, devices: int, offset: int) -> Iterator[Resident]:
    """Yields pods that fit on a node together."""
    allocatable = node["status"]["allocatable"]
    left, places = int(allocatable["cpu"]), int(allocatable["pods"])
    for index in range(chance.randint(1, min(5, places))):
        cpu, with_device = min(left, chance.randint(0, 4)), devices > 0 and chance.random() < 0.5
        left, devices = left - cpu, devices - with_device
        labels = {"case": case, "group": str(chance.randint(0, 1))} if chance.random() < 0.8 else {}
        number = offset + index
        plan = _plan(chance, f"{case}-r{number}", cpu, with_device, labels)
        yield Resident(plan, node["metadata"]["name"], f"2026-01-01T00:{chance.randint(0, 59):02}:{number:02}Z")


def _plan(
    chance: random.Random, name: str, cpu: int, device: bool, labels: dict[str, str], *, newcomer: bool = False
) -> PodPlan:
    container = {"name": "main", "resources": {"requests": {"cpu": str(cpu)}}}
    shy = newcomer and chance.random() < 0.1
    priority = _NEVER if shy else priority_name(chance.choice(PRIORITIES[2:] if newcomer else PRIORITIES))
    templates = (TEMPLATE,) if device else ()
    return PodPlan(name, PLAIN, (), templates, containers=(container,), priority=priority, labels=labels)


def _node(name: str, cpus: int, pods: int) -> JSON:
    allocatable = {"cpu": str(cpus), "memory": "1Ti", "pods": str(pods)}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"allocatable": allocatable}}


def _slice(node: str, devices: int) -> JSON:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": node},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"device-{index}"} for index in range(devices)],
        },
    }


def _budget(name: str, labels: JSON, allowed: int) -> JSON:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": PLAIN},
        "spec": {"selector": {"matchLabels": labels}, "minAvailable": 1},
        "status": {"disruptionsAllowed": allowed},
    }


@dataclass(frozen=True)
class Move:
    """What became of a pod: its node, None if it has none, and the pods that were evicted for it."""

    node: str | None
    victims: tuple[str, ...]


@dataclass
class PreemptionResult:
    """A case, the moves of each pod on both, and their differences."""

    case: PreemptionCase
    moves: list[Move] = field(default_factory=list)
    disagreements: list[str] = field(default_factory=list)


class PreemptionRun:
    """One run of a case on a cluster."""

    def __init__(self, real: RealCluster, profile: ServerProfile, case: PreemptionCase) -> None:
        self._real, self._profile, self._case = real, profile, case
        self._running: dict[str, PodPlan] = {}
        self._plans: list[PodPlan] = []

    def run(self, settle: float) -> PreemptionResult:
        """Runs the case; `settle` seconds before each pod, in which the scheduler sees what was changed."""
        result = PreemptionResult(self._case)
        try:
            self._prepare()
            for plan in self._case.newcomers:
                time.sleep(settle)
                before = self._snapshot()
                found = self._real_move(plan)
                result.moves.append(found)
                ours = self._our_move(before, plan)
                if found != ours:
                    result.disagreements.append(f"{plan.name}: real {found}, ours {ours}")
                    break
        finally:
            self._clean()
        return result

    def _prepare(self) -> None:
        requests = self._real.requests
        for each in self._case.objects:
            if isinstance(made := requests.create(each), Refusal):
                raise HarnessError(f"{each['kind']} {each['metadata']['name']}: {made.message}")
            if each["kind"] == "PodDisruptionBudget":
                change = {"status": {"observedGeneration": 1, **each["status"], **_HEALTH}}
                requests.patch(each["kind"], PLAIN, each["metadata"]["name"], change, status=True)
        for each in self._case.residents:
            self._plans.append(each.plan)
            verdict = self._real.schedule(each.plan, [each.node])
            if verdict.kind != "scheduled":
                raise HarnessError(f"pod {each.plan.name} does not fit on {each.node}: {verdict.message}")
            self._running[each.plan.name] = each.plan
            requests.patch("Pod", PLAIN, each.plan.name, {"status": {"startTime": each.started}}, status=True)

    def _real_move(self, plan: PodPlan) -> Move:
        """Creates the pod and waits until it runs or has no hope."""
        self._plans.append(plan)
        uid = self._real.submit(plan, self._case.nodes)
        deadline = time.monotonic() + _LIMIT
        while True:
            pod = self._real.decided(uid)
            if pod is not None and (node := pod["spec"].get("nodeName")):
                self._running[plan.name] = plan
                break
            if pod is not None and not pod["status"].get("nominatedNodeName"):
                node = None
                self._real.requests.delete("Pod", PLAIN, plan.name)
                break
            if time.monotonic() > deadline:
                raise HarnessError(f"pod {plan.name} has been nominated for {_LIMIT:.0f} s and does not run")
        gone = [name for name in self._running if self._real.requests.find("Pod", PLAIN, name) is None]
        for name in gone:
            del self._running[name]
        return Move(node, tuple(sorted(gone)))

    def _our_move(self, before: Snapshot, plan: PodPlan) -> Move:
        pod = pod_object(plan, self._case.nodes)
        pod["metadata"]["uid"] = plan.name
        after = schedule(before.with_objects([pod]))
        victims = [name for each in after.preemptions if each.pod[1] == plan.name for _, name in each.victims]
        return Move(after.pods_by_key[PLAIN, plan.name].node, tuple(sorted(victims)))

    def _snapshot(self) -> Snapshot:
        """Returns the objects of the case as the server has them."""
        get = self._real.requests.get
        common = [get(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in _COMMON]
        names = [
            (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"]) for each in self._case.objects
        ]
        pods = [("Pod", PLAIN, name) for name in self._running]
        claims = [("ResourceClaim", PLAIN, name) for plan in self._plans for name in plan.claim_names()]
        found = [self._real.requests.find(*each) for each in (*names, *pods, *claims)]
        return Snapshot(profile=self._profile).with_objects([*common, *(each for each in found if each is not None)])

    def _clean(self) -> None:
        requests = self._real.requests
        for plan in self._plans:
            requests.delete("Pod", PLAIN, plan.name)
            for name in plan.claim_names():
                self._real.forget_claim(PLAIN, name)
        for each in self._case.objects:
            requests.delete(each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])


_COMMON: Final = common_objects()
_HEALTH: Final = {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
