"""A case on the real control plane."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from tests.cluster.differential.api import Refusal, Requests
from tests.cluster.differential.case import ADMIN, JSON, PLAIN, PodPlan
from tests.cluster.differential.extender import CHOICE, Extender
from tests.cluster.differential.pods import PodWatcher
from tests.cluster.harness.control_plane import BETA, ControlPlane, ControlPlaneSettings, control_plane
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.progress import Progress
from tests.cluster.harness.waiting import TIMEOUT

PLUGINS: Final = ("PrioritySort", "NodeResourcesFit", "NodeAffinity", "DynamicResources", "DefaultBinder")
PREEMPTING: Final = (*PLUGINS[:-1], "DefaultPreemption", PLUGINS[-1])
_LOOK: Final = 0.05


@dataclass(frozen=True)
class Verdict:
    """What the scheduler did with a pod: `fitting` are the nodes that passed its filters, `allocations` are by claim.

    `extended` is the claim that was made for its extended resources.
    """

    kind: Literal["scheduled", "unschedulable", "error"]
    message: str = ""
    node: str = ""
    fitting: tuple[str, ...] = ()
    allocations: dict[str, JSON] = field(default_factory=dict)
    extended: JSON | None = None


class RealCluster:
    """The API server and the scheduler, as cases use them. It is safe for threads."""

    def __init__(self, plane: ControlPlane, requests: Requests, extender: Extender, watcher: PodWatcher) -> None:
        self.plane, self.requests = plane, requests
        self._extender, self._watcher = extender, watcher

    def schedule(self, plan: PodPlan, nodes: Iterable[str]) -> Verdict:
        """Creates a pod and the claims of its templates, and waits until the scheduler has decided about it."""
        verdict = self._wait(plan, self.submit(plan, nodes))
        if verdict.kind != "scheduled":
            # Otherwise the scheduler tries it again at each later change.
            self.requests.delete("Pod", plan.namespace, plan.name)
        return verdict

    def submit(self, plan: PodPlan, nodes: Iterable[str]) -> str:
        """Creates a pod and the claims of its templates; returns the pod's UID."""
        made = self.requests.create(pod_object(plan, nodes))
        if isinstance(made, Refusal):
            raise HarnessError(f"pod {plan.name}: {made.message}")
        if plan.templates:
            self._generate_claims(plan, made)
        return str(made["metadata"]["uid"])

    def decided(self, uid: str) -> JSON | None:
        """Returns a pod that is bound or marked as unschedulable, None if it is neither soon."""
        self.plane.check()
        return self._watcher.decided(uid, _LOOK)

    def delete(self, objects: Iterable[JSON]) -> None:
        """Deletes objects that were created."""
        for each in objects:
            metadata = each["metadata"]
            self.requests.delete(each["kind"], metadata.get("namespace"), metadata["name"])

    def claim(self, namespace: str, name: str) -> JSON:
        """Returns a claim as it is now."""
        return self.requests.get("ResourceClaim", namespace, name)

    def forget_claim(self, namespace: str, name: str) -> None:
        """Deletes a claim that may be allocated and reserved."""
        self.requests.delete("ResourceClaim", namespace, name, finalized=True)

    def _generate_claims(self, plan: PodPlan, pod: JSON) -> None:
        """Does what the claim controller does for a pod with templates."""
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": plan.name,
            "uid": pod["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        statuses = []
        for template in plan.templates:
            found = self.requests.get("ResourceClaimTemplate", plan.namespace, template)
            name = f"{plan.name}-{template}"
            annotations = {"resource.kubernetes.io/pod-claim-name": name}
            metadata = {"name": name, "namespace": plan.namespace, "annotations": annotations}
            claim = {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {**metadata, "ownerReferences": [owner]},
                "spec": found["spec"]["spec"],
            }
            made = self.requests.create(claim)
            if isinstance(made, Refusal):
                raise HarnessError(f"claim {name}, made from a template: {made.message}")
            statuses.append({"name": name, "resourceClaimName": name})
        change = {"status": {"resourceClaimStatuses": statuses}}
        self.requests.patch("Pod", plan.namespace, plan.name, change, status=True)

    def _wait(self, plan: PodPlan, uid: str) -> Verdict:
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            pod = self._watcher.decided(uid, _LOOK)
            if pod is not None and (verdict := self._verdict(plan, pod)):
                return verdict
            # With binding conditions a pod waits for its devices after they are allocated.
            if pod is None and self._extender.fitting(uid) and (verdict := self._bound(plan, uid, "")):
                return verdict
            self.plane.check()
        raise HarnessError(f"pod {plan.name}: the scheduler has not decided within {TIMEOUT:.0f} s")

    def _verdict(self, plan: PodPlan, pod: JSON) -> Verdict | None:
        node = pod["spec"].get("nodeName")
        if node:
            return self._bound(plan, pod["metadata"]["uid"], node)
        condition = next(each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
        failed = condition["reason"] == "SchedulerError"
        return Verdict("error" if failed else "unschedulable", condition.get("message", ""))

    def _bound(self, plan: PodPlan, uid: str, node: str) -> Verdict | None:
        claims = {name: self.claim(plan.namespace, name) for name in plan.claim_names()}
        allocations = {name: (claim.get("status") or {}).get("allocation") for name, claim in claims.items()}
        known = {name: each for name, each in allocations.items() if each is not None}
        reserved = all((claim.get("status") or {}).get("reservedFor") for claim in claims.values())
        extended = self._extended(plan)
        if len(known) < len(claims) or not reserved or (plan.extended and extended is None):
            return None
        fitting = self._extender.fitting(uid)
        chosen = node or fitting[plan.choice % len(fitting)]
        return Verdict("scheduled", "", chosen, tuple(fitting), known, extended)

    def _extended(self, plan: PodPlan) -> JSON | None:
        """Returns the claim for a pod's extended resources, once it is allocated and in the pod's status."""
        if not plan.extended:
            return None
        status = self.requests.get("Pod", plan.namespace, plan.name)["status"].get("extendedResourceClaimStatus")
        if not status:
            return None
        found = self.claim(plan.namespace, status["resourceClaimName"])
        allocated = (found.get("status") or {}).get("allocation") is not None
        return {**found, "mappings": status["requestMappings"]} if allocated else None


@contextmanager
def real_cluster(
    folder: Path,
    version: str,
    gates: dict[str, bool],
    progress: Progress,
    nodes: Iterable[JSON],
    plugins: Iterable[str] = PLUGINS,
) -> Iterator[RealCluster]:
    """Runs a control plane whose scheduler has these plugins: by default it only allocates devices.

    Its nodes are only objects.
    """
    with ExitStack() as stack:
        extender = stack.enter_context(Extender().running())
        config = folder / "scheduler.json"
        kubeconfig = folder / "diff" / "scheduler.kubeconfig"
        config.write_text(json.dumps(_scheduler_config(kubeconfig, extender.url, plugins)))
        flags = {
            # No controller gives pods a token, or nodes their health.
            "apiserver": ["--disable-admission-plugins=ServiceAccount,TaintNodesByCondition", *_TUNING],
            "scheduler": [f"--config={config}"],
        }
        settings = ControlPlaneSettings(version, {**BETA, **gates}, flags=flags, scheduler=True)
        plane = stack.enter_context(control_plane("diff", folder, settings, progress))
        requests = Requests(plane.api)
        stack.callback(requests.close)
        for each in (*namespaces(), *nodes):
            requests.create(each)
        watcher = stack.enter_context(PodWatcher(plane.kubeconfig("admin")).running())
        yield RealCluster(plane, requests, extender, watcher)


_TUNING: Final = ("--max-requests-inflight=2000", "--max-mutating-requests-inflight=2000")


def namespaces() -> list[JSON]:
    """Returns the namespaces of all cases."""
    labels = {ADMIN: {"resource.kubernetes.io/admin-access": "true"}, PLAIN: {}}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": each}}
        for name, each in labels.items()
    ]


def _scheduler_config(kubeconfig: Path, extender: str, names: Iterable[str]) -> JSON:
    plugins = {"enabled": [{"name": name} for name in names], "disabled": [{"name": "*"}]}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 5000, "burst": 5000},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        "podInitialBackoffSeconds": 1,
        "podMaxBackoffSeconds": 1,
        "profiles": [{"schedulerName": "default-scheduler", "plugins": {"multiPoint": plugins}}],
        "extenders": [
            {"urlPrefix": extender, "filterVerb": "filter", "nodeCacheCapable": True, "httpTimeout": f"{TIMEOUT:.0f}s"}
        ],
    }


def pod_object(plan: PodPlan, nodes: Iterable[str]) -> JSON:
    """Returns the pod of a plan."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]} for node in nodes]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    claims: list[dict[str, Any]] = [{"name": name, "resourceClaimName": name} for name in plan.claims]
    claims += [{"name": f"{plan.name}-{each}", "resourceClaimTemplateName": each} for each in plan.templates]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": plan.name,
            "namespace": plan.namespace,
            "annotations": {CHOICE: str(plan.choice)},
            "labels": dict(plan.labels),
        },
        "spec": {
            "initContainers": [{**each, "image": "none"} for each in plan.init],
            "containers": [{**each, "image": "none"} for each in plan.containers],
            "resourceClaims": claims,
            "affinity": affinity,
            "terminationGracePeriodSeconds": 0,
            **({"priorityClassName": plan.priority} if plan.priority else {}),
        },
    }
