"""A cluster of one node in one process: API server, kubelet and CDI directories under one temporary directory.

    with EmbeddedCluster() as cluster:
        # start a driver with cluster.kubeconfig, cluster.plugins_dir, cluster.registry_dir and cluster.cdi_dir
        cluster.kubelet.wait_for_driver("gpu.example.com")
        cluster.create_class("gpu", ["device.driver == 'gpu.example.com'"])
        cluster.create_claim("claim-1", {"gpu": "gpu"})
        pod = cluster.run_pod("pod-1", ["claim-1"])
        spec = cluster.container_spec(pod)

`run_pod` schedules a pod whose claims have no devices yet (`schedule`); `allocate` gives a claim chosen devices.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster import SchedulingOutcome, Snapshot
from dra_sdk.tools.simulator.cdi import CdiDirectories
from dra_sdk.tools.simulator.kubelet.emulator import HealthMode, KubeletEmulator
from dra_sdk.tools.simulator.kubelet.pods import RunningPod
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.tools.simulator.local import JsonObjects, LocalClient, retry_on_conflict
from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.oci import HostLookup, host_device
from dra_sdk.tools.simulator.pool_requests import PoolRequests
from dra_sdk.tools.simulator.resources import Catalog, server_catalog
from dra_sdk.tools.simulator.scheduler import AllocatedDevice, NotScheduledError, Scheduler, allocation
from dra_sdk.tools.simulator.server import ApiServer, make_certificates
from dra_sdk.tools.simulator.strategy import Strategy
from dra_sdk.wire.profile import ServerProfile

VERSION = "1.36"
_FIRST_WITH_HEALTH, _FIRST_TO_NEGOTIATE_HEALTH = 36, 37
NAMESPACES = ("default", "kube-system")
CONTAINER = "main"
WAIT_SECONDS = 30.0  # events take milliseconds, on a busy machine seconds
# The path of a socket may have 107 bytes, and it contains the name of the driver twice.
LONGEST_ROOT = 40


class EmbeddedCluster:
    """A cluster with one node named `node_name`; `start` (or `with`) starts everything, `stop` leaves nothing behind.

    `version` (1.34 to 1.37) and `feature_gates`, which override its defaults, choose the API server: the kinds that it
    serves, the fields that it drops, the objects that it refuses. `catalog` replaces the kinds. `directory` holds the
    files; by default it is a temporary directory that `stop` removes. `tls` serves the API over HTTPS. `token` is the
    bearer token that clients must send (Go clients send none over plain HTTP). `timing` is that of `KubeletEmulator`;
    drivers are asked for health as the kubelet of `version` does. `host` looks up device nodes for `container_spec`.
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
        self._pool_requests = PoolRequests(LocalClient(self.store, "kube-controller-manager"), self.profile)
        self._tls = tls
        self.kubelet = KubeletEmulator(
            node_name,
            LocalClient(self.store, "kubelet"),
            self.root / "kubelet",
            timing=timing,
            health=_health(self.profile),
        )
        self.plugins_dir = self.kubelet.plugins_dir
        self.registry_dir = self.kubelet.registry_dir
        self.cdi = CdiDirectories([self.static_cdi_dir, self.cdi_dir], host)

    # -- start and stop

    def start(self) -> Self:
        """Start the API server and the kubelet, and create the node and the namespaces."""
        try:
            for folder in (self.cdi_dir, self.static_cdi_dir):
                folder.mkdir(parents=True, exist_ok=True)
            if self._tls and not self.server.tls:
                self.server.tls = make_certificates(self.root)
            for namespace in NAMESPACES:
                if not self.store.exists(self.store.catalog["namespaces"], namespace):
                    self.create_namespace(namespace)
            if not self.store.exists(self.store.catalog["nodes"], self.node_name):
                self.create_node(self.node_name)
            self.server.start()
            self.server.write_kubeconfig(self.kubeconfig)
            self._pool_requests.start()
            self.kubelet.start()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop everything and remove the temporary directory."""
        self.kubelet.stop()
        self._pool_requests.stop()
        self.server.stop()
        self.server.release()
        if self._temporary:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- objects

    @property
    def node(self) -> JSON:
        """The Node object."""
        return self.api.get("nodes", self.node_name)

    def create_node(self, name: str) -> JSON:
        """Create a ready node, without a kubelet, labelled with its name."""
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        status = {"conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]}
        return self.api.create("nodes", {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status})

    def create_namespace(self, name: str) -> JSON:
        """Create a namespace."""
        labels = {"kubernetes.io/metadata.name": name}
        return self.api.create("namespaces", {"metadata": {"name": name, "labels": labels}})

    def create_class(self, name: str, selectors: Iterable[str] = (), config: Iterable[Mapping[str, Any]] = ()) -> JSON:
        """Create a DeviceClass from CEL expressions and config entries (`{"opaque": {…}}`)."""
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
        """Create a ResourceClaim; `requests` maps request names to class names, or is a list of API requests."""
        if isinstance(requests, Mapping):
            requests = [{"name": key, "exactly": {"deviceClassName": value}} for key, value in requests.items()]
        devices: JSON = {"requests": [dict(request) for request in requests]}
        if entries := [dict(entry) for entry in config]:
            devices["config"] = entries
        claim = {"metadata": {"name": name, "namespace": namespace}, "spec": {"devices": devices}}
        return self.api.create("resourceclaims", claim)

    def wait_slices(self, driver: str, count: int = 1, timeout: float = WAIT_SECONDS) -> JsonObjects:
        """Wait until a driver has exactly `count` ResourceSlices; `TimeoutError` after `timeout` seconds."""
        ends = time.monotonic() + timeout
        watch = self.api.watch("resourceslices")
        try:
            while len(slices := self.api.list("resourceslices", fields=f"spec.driver={driver}")) != count:
                left = ends - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"{driver}: {len(slices)} ResourceSlices after {timeout:g} s, not {count}")
                watch.next(left)
        finally:
            self.api.close(watch)
        return slices

    # -- scheduling

    def snapshot(self) -> Snapshot:
        """Return all objects that decide where pods go and which devices they get, for `dra_sdk.tools.scheduling`."""
        return self.scheduler.snapshot()

    def schedule(self) -> SchedulingOutcome:
        """Run the scheduler once: claims are created from templates, allocated and reserved, pods get their node.

        Before that, pods whose devices have a NoExecute taint are stopped, even if they tolerate it for some time. For
        every pod and claim that gets nothing the outcome has the reason in a sentence.
        """
        return self.scheduler.schedule()

    def allocate(
        self, name: str, devices: Sequence[AllocatedDevice], namespace: str = "default", *, node: str = ""
    ) -> JSON:
        """Write an allocation of exactly these devices into a claim, with the configuration of class and claim."""
        classes = {entry["metadata"]["name"]: entry for entry in self.api.list("deviceclasses")}

        def allocated(claim: JSON) -> JSON:
            made = allocation(claim, classes, devices, node or self.node_name)
            return {**claim.get("status", {}), "allocation": made}

        return self._change_status(name, namespace, allocated)

    def deallocate(self, name: str, namespace: str = "default") -> JSON:
        """Remove the allocation, the reservations and the device statuses of a claim."""
        return self._change_status(name, namespace, lambda _claim: {})

    def reserve(self, name: str, pod: JSON) -> JSON:
        """Reserve a claim for a pod; a claim that is reserved for it already stays as it is."""
        metadata = pod["metadata"]
        consumer = {"resource": "pods", "name": metadata["name"], "uid": metadata["uid"]}

        def reserved(claim: JSON) -> JSON:
            status = claim.get("status", {})
            others = [other for other in status.get("reservedFor", []) if other["uid"] != consumer["uid"]]
            return {**status, "reservedFor": [*others, consumer]}

        return self._change_status(name, metadata["namespace"], reserved)

    def _change_status(self, name: str, namespace: str, change: Callable[[JSON], JSON]) -> JSON:
        # A driver may write the status of its devices at any time.
        def write() -> JSON:
            claim = self.api.get("resourceclaims", name, namespace)
            return self.api.update_status("resourceclaims", {**claim, "status": change(claim)})

        return retry_on_conflict(write)

    # -- pods

    def create_pod(
        self,
        name: str,
        claims: Sequence[str] = (),
        namespace: str = "default",
        *,
        containers: Mapping[str, Sequence[str]] | None = None,
    ) -> JSON:
        """Create a pod. If all its claims are allocated, the pod is on the node and the claims are reserved for it.

        `containers` lists for each container the claims that it uses, as `claim` or `claim/request`. By default one
        container, `main`, uses all claims.
        """
        wanted = containers if containers is not None else {CONTAINER: list(claims)}
        objects = [self.api.get("resourceclaims", claim, namespace) for claim in claims]
        ready = all(claim.get("status", {}).get("allocation") for claim in objects)
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
        """Create a pod as `create_pod` does, unless it exists, and let the kubelet prepare its claims.

        A pod without a node is scheduled first; `NotScheduledError` if there is no node with its devices. After an
        error the same pod may be run again.
        """
        if not self.store.exists(self.store.catalog["pods"], name, namespace):
            self.create_pod(name, claims, namespace, containers=containers)
        if not self.api.get("pods", name, namespace)["spec"].get("nodeName"):
            self._schedule_pod(name, namespace)
        return self.kubelet.run_pod(self.api.get("pods", name, namespace))

    def _schedule_pod(self, name: str, namespace: str) -> None:
        placement = self.schedule().pods_by_key[namespace, name]
        if placement.node != self.node_name:
            why = placement.reason or f"the scheduler chose node {placement.node}, which has no kubelet here"
            raise NotScheduledError(f"pod {namespace}/{name}: {why}")

    def stop_pod(self, name: str, namespace: str = "default") -> None:
        """Let the kubelet unprepare the pod's claims, then delete the pod and the claims that were made for it.

        Other claims are deallocated with their last pod if the scheduler allocated them; devices that `allocate` gave
        them stay.
        """
        pod = self.api.get("pods", name, namespace)
        self.kubelet.stop_pod(pod["metadata"]["uid"])
        self.api.delete("pods", name, namespace)
        for claim in self.api.list("resourceclaims", namespace):
            self.scheduler.release(claim["metadata"]["name"], namespace, pod)

    def container_spec(self, pod: RunningPod, container: str = CONTAINER, spec: JSON | None = None) -> JSON:
        """Return `spec`, by default an empty OCI spec, with the CDI devices of one of the pod's containers."""
        return self.cdi.inject(spec or {"ociVersion": "1.2.1"}, pod.container_cdi_ids(container))


def _health(profile: ServerProfile) -> HealthMode:
    """Return which drivers a kubelet of this release asks for health, with its default feature gates."""
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
