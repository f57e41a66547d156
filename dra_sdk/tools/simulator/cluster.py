"""A cluster of one node in one process: API server, kubelet and CDI directories under one temporary directory.

    with EmbeddedCluster() as cluster:
        # start a driver with cluster.kubeconfig, cluster.plugins_dir, cluster.registry_dir and cluster.cdi_dir
        cluster.kubelet.wait_for_driver("gpu.example.com")
        cluster.create_class("gpu", ["device.driver == 'gpu.example.com'"])
        cluster.create_claim("claim-1", {"gpu": "gpu"})
        pod = cluster.run_pod("pod-1", ["claim-1"])
        spec = cluster.container_spec(pod)

`run_pod` has claims allocated as the scheduler does it (`schedule`), unless `allocate` was told their devices before.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dra_sdk.tools.simulator import certificates
from dra_sdk.tools.simulator.allocation import allocation
from dra_sdk.tools.simulator.cdi import CdiDirectories
from dra_sdk.tools.simulator.kubelet import KubeletEmulator
from dra_sdk.tools.simulator.local import LocalClient, persistently
from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.oci import host_device
from dra_sdk.tools.simulator.resources import server_catalog
from dra_sdk.tools.simulator.scheduler import NotScheduledError, Scheduler
from dra_sdk.tools.simulator.server import ApiServer
from dra_sdk.tools.simulator.strategy import Strategy
from dra_sdk.wire.profile import ServerProfile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from types import TracebackType
    from typing import Any, Self

    from dra_sdk.model import JSON
    from dra_sdk.tools.scheduling.cluster import SchedulingOutcome, Snapshot
    from dra_sdk.tools.simulator.allocation import AllocatedDevice
    from dra_sdk.tools.simulator.kubelet import HealthMode, KubeletTiming, RunningPod
    from dra_sdk.tools.simulator.local import JsonObjects
    from dra_sdk.tools.simulator.oci import HostLookup
    from dra_sdk.tools.simulator.resources import Catalog

VERSION = "1.36"
_FIRST_WITH_HEALTH, _FIRST_TO_NEGOTIATE_HEALTH = 36, 37
NAMESPACES = ("default", "kube-system")
CONTAINER = "main"
WAIT_SECONDS = 30.0  # what is waited for takes milliseconds, seconds on a busy machine
# A socket's path may have 107 bytes; this leaves a driver its name twice over.
LONGEST_ROOT = 40


class EmbeddedCluster:
    """One node named `node_name`; everything starts with `start` (or `with`) and nothing is left after `stop`.

    `version` (1.34 to 1.37) and `feature_gates`, on top of its defaults, say which API server this is: what it serves,
    which fields it drops, what it refuses. `catalog` replaces what it serves. `directory` is where to put the files;
    without it a temporary directory is made, and removed at the end. `tls` serves the API over HTTPS; `token` is what
    clients must show then (Go clients show none over plain HTTP). `host` looks device nodes up for `container_spec`.
    `health` is whom the kubelet asks for health, by default as the kubelet of `version` does.
    """

    def __init__(
        self,
        node_name: str = "node-1",
        *,
        directory: Path | None = None,
        version: str = VERSION,
        feature_gates: Mapping[str, bool] | None = None,
        catalog: Catalog | None = None,
        tls: bool = False,
        token: str | None = None,
        timing: KubeletTiming | None = None,
        health: HealthMode | None = None,
        host: HostLookup = host_device,
    ) -> None:
        self.node_name = node_name
        self._temporary = None if directory else _short_directory()
        self.root = directory or Path(self._temporary.name if self._temporary else "")
        self.cdi_dir = self.root / "cdi"
        self.static_cdi_dir = self.root / "cdi-static"
        self.kubeconfig = self.root / "kubeconfig"
        self.profile = ServerProfile.of(version, feature_gates)
        self.store = ObjectStore(catalog or server_catalog(self.profile))
        Strategy(self.store, self.profile).install()
        self.api = LocalClient(self.store)
        self.scheduler = Scheduler(self.api, self.profile, lambda namespace, name: self.stop_pod(name, namespace))
        self.server = ApiServer(self.store, token=token, git_version=f"v{self.profile.version}.0")
        self._tls = tls
        self.kubelet = KubeletEmulator(
            node_name,
            LocalClient(self.store, "kubelet"),
            self.root / "kubelet",
            timing=timing,
            health=health or _health(self.profile),
        )
        self.plugins_dir = self.kubelet.plugins_dir
        self.registry_dir = self.kubelet.registry_dir
        self.cdi = CdiDirectories([self.static_cdi_dir, self.cdi_dir], host)

    # -- life

    def start(self) -> Self:
        """Starts the API server and the kubelet, and creates the node and the namespaces."""
        try:
            for folder in (self.cdi_dir, self.static_cdi_dir):
                folder.mkdir(parents=True, exist_ok=True)
            if self._tls and not self.server.tls:
                self.server.tls = certificates.make(self.root)
            for namespace in NAMESPACES:
                if not self.store.exists(self.store.catalog["namespaces"], namespace):
                    self.create_namespace(namespace)
            if not self.store.exists(self.store.catalog["nodes"], self.node_name):
                self.create_node(self.node_name)
            self.server.start()
            self.server.write_kubeconfig(self.kubeconfig)
            self.kubelet.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stops everything and removes the temporary directory."""
        self.kubelet.stop()
        self.server.stop()
        self.server.release()
        if self._temporary:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- objects

    @property
    def node(self) -> JSON:
        """The Node object."""
        return self.api.get("nodes", self.node_name)

    def create_node(self, name: str) -> JSON:
        """Creates a ready node without a kubelet; nodes are labelled with their name."""
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        status = {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}
        return self.api.create("nodes", {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status})

    def create_namespace(self, name: str, labels: Mapping[str, str] | None = None) -> JSON:
        """Creates a namespace."""
        metadata = {"name": name, "labels": {"kubernetes.io/metadata.name": name, **(labels or {})}}
        return self.api.create("namespaces", {"metadata": metadata})

    def create_class(self, name: str, selectors: Iterable[str] = (), config: Iterable[Mapping[str, Any]] = ()) -> JSON:
        """Creates a DeviceClass from CEL expressions and config entries (`{"opaque": {…}}`)."""
        spec: JSON = {}
        if expressions := [{"cel": {"expression": expression}} for expression in selectors]:
            spec["selectors"] = expressions
        if entries := [dict(entry) for entry in config]:
            spec["config"] = entries
        return self.api.create("deviceclasses", {"metadata": {"name": name}, "spec": spec})

    def create_claim(
        self,
        name: str,
        requests: Mapping[str, str] | Sequence[Mapping[str, Any]],
        namespace: str = "default",
        *,
        config: Iterable[Mapping[str, Any]] = (),
    ) -> JSON:
        """Creates a ResourceClaim; `requests` is either request name → class name, or a list of full requests."""
        if isinstance(requests, Mapping):
            requests = [{"name": key, "exactly": {"deviceClassName": value}} for key, value in requests.items()]
        devices: JSON = {"requests": [dict(request) for request in requests]}
        if entries := [dict(entry) for entry in config]:
            devices["config"] = entries
        claim = {"metadata": {"name": name, "namespace": namespace}, "spec": {"devices": devices}}
        return self.api.create("resourceclaims", claim)

    def wait_slices(self, driver: str, count: int = 1, timeout: float = WAIT_SECONDS) -> JsonObjects:
        """Waits until a driver has exactly so many ResourceSlices; `TimeoutError` tells how many there are instead."""
        ends = time.monotonic() + timeout
        watch = self.api.watch("resourceslices")
        try:
            while len(found := self.api.list("resourceslices", fields=f"spec.driver={driver}")) != count:
                left = ends - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"{driver}: {len(found)} ResourceSlices after {timeout:g} s, not {count}")
                watch.next(left)
        finally:
            self.api.close(watch)
        return found

    # -- the scheduler's part

    def snapshot(self) -> Snapshot:
        """All objects that decide where pods go and which devices they get, for `dra_sdk.tools.scheduling`."""
        return self.scheduler.snapshot()

    def schedule(self) -> SchedulingOutcome:
        """One round of the scheduler: claims are made from templates, allocated and reserved, pods get their node.

        Pods whose devices have a taint with effect NoExecute are stopped first, whenever their tolerations end. The
        outcome has, for each pod and claim that gets nothing, the reason in a sentence.
        """
        return self.scheduler.schedule()

    def allocate(
        self, name: str, devices: Sequence[AllocatedDevice], namespace: str = "default", *, node: str = ""
    ) -> JSON:
        """Writes an allocation of exactly these devices into a claim, with the configuration of class and claim."""
        classes = {entry["metadata"]["name"]: entry for entry in self.api.list("deviceclasses")}

        def allocated(claim: JSON) -> JSON:
            made = allocation(claim, classes, devices, node or self.node_name)
            return {**claim.get("status", {}), "allocation": made}

        return self._change_status(name, namespace, allocated)

    def deallocate(self, name: str, namespace: str = "default") -> JSON:
        """Takes the allocation, the reservations and the device statuses out of a claim."""
        return self._change_status(name, namespace, lambda _claim: {})

    def reserve(self, name: str, pod: JSON) -> JSON:
        """Reserves a claim for a pod, once."""
        metadata = pod["metadata"]
        consumer = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}

        def reserved(claim: JSON) -> JSON:
            status = claim.get("status", {})
            others = [other for other in status.get("reservedFor", []) if other["uid"] != consumer["uid"]]
            return {**status, "reservedFor": [*others, consumer]}

        return self._change_status(name, metadata["namespace"], reserved)

    def _change_status(self, name: str, namespace: str, change: Callable[[JSON], JSON]) -> JSON:
        """A driver may write the status of its devices at any time."""

        def write() -> JSON:
            claim = self.api.get("resourceclaims", name, namespace)
            return self.api.update_status("resourceclaims", {**claim, "status": change(claim)})

        return persistently(write)

    # -- pods

    def create_pod(
        self,
        name: str,
        claims: Sequence[str] = (),
        namespace: str = "default",
        *,
        containers: Mapping[str, Sequence[str]] | None = None,
    ) -> JSON:
        """Creates a pod: on the node and with its claims reserved, or for the scheduler if one is not allocated.

        `containers` says what each container asks for: `claim` or `claim/request`. By default one container, `main`,
        asks for all claims whole.
        """
        wanted = containers if containers is not None else {CONTAINER: list(claims)}
        found = [self.api.get("resourceclaims", claim, namespace) for claim in claims]
        ready = all(claim.get("status", {}).get("allocation") for claim in found)
        spec = {
            **({"nodeName": self.node_name} if ready else {}),
            "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
            "containers": [
                {"name": container, "image": "none", "resources": {"claims": [_reference(r) for r in references]}}
                for container, references in wanted.items()
            ],
        }
        pod = self.api.create("pods", {"metadata": {"name": name, "namespace": namespace}, "spec": spec})
        for claim in claims if ready else ():
            self.reserve(claim, pod)
        return pod

    def run_pod(
        self,
        name: str,
        claims: Sequence[str] = (),
        namespace: str = "default",
        *,
        containers: Mapping[str, Sequence[str]] | None = None,
    ) -> RunningPod:
        """Creates a pod as `create_pod` does, if it is not there yet, and has the kubelet prepare its claims.

        Where a claim of it is not allocated there is a round of the scheduler first; `NotScheduledError` if that finds
        no devices. Run the same pod again after an error, or to run one that was created by other means.
        """
        if not self.store.exists(self.store.catalog["pods"], name, namespace):
            self.create_pod(name, claims, namespace, containers=containers)
        if not self.api.get("pods", name, namespace)["spec"].get("nodeName"):
            self._scheduled(name, namespace)
        return self.kubelet.run_pod(self.api.get("pods", name, namespace))

    def _scheduled(self, name: str, namespace: str) -> None:
        placement = self.schedule().pods_by_key[namespace, name]
        if placement.node != self.node_name:
            why = placement.reason or f"it was put on {placement.node}, which has no kubelet here"
            raise NotScheduledError(f"pod {namespace}/{name}: {why}")

    def stop_pod(self, name: str, namespace: str = "default") -> None:
        """Has the kubelet unprepare, deletes the pod and what was made for it, and takes back what was given to it.

        Claims keep devices that they were told to have; what the scheduler allocated goes with the last pod.
        """
        pod = self.api.get("pods", name, namespace)
        self.kubelet.stop_pod(pod["metadata"]["uid"])
        self.api.delete("pods", name, namespace)
        for claim in self.api.list("resourceclaims", namespace):
            self.scheduler.release(claim["metadata"]["name"], namespace, pod)

    def container_spec(self, pod: RunningPod, container: str = CONTAINER, spec: JSON | None = None) -> JSON:
        """The OCI spec of a container (by default of an empty one) with the pod's CDI devices injected."""
        return self.cdi.inject(spec or {"ociVersion": "1.2.1"}, pod.container_cdi_ids(container))


def _health(profile: ServerProfile) -> HealthMode:
    """Whom a kubelet of this release asks for health, unless its feature gate is set otherwise."""
    if profile.minor < _FIRST_WITH_HEALTH:
        return "off"
    return "negotiate" if profile.minor >= _FIRST_TO_NEGOTIATE_HEALTH else "always"


def _reference(text: str) -> dict[str, str]:
    claim, slash, request = text.partition("/")
    return {"name": claim, "request": request} if slash else {"name": claim}


def _short_directory() -> tempfile.TemporaryDirectory[str]:
    made = tempfile.TemporaryDirectory(prefix="dra-")
    if len(made.name) <= LONGEST_ROOT:
        return made
    made.cleanup()
    return tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp")
