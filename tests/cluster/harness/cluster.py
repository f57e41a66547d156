"""A real single-node Kubernetes cluster for tests: bring it up, use it, break its components, take it down."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from . import cleanup, configuration, network, pki
from .api import Api, fetch
from .build import ensure_kubernetes
from .cache import DEFAULT_VERSION, Cache, Version
from .components import Components
from .daemons import Daemons
from .debian import CLUSTER, require
from .errors import HarnessError
from .layout import DEFAULT_NAME, Layout
from .processes import MARK, Process, foreign_processes
from .progress import Progress, Step
from .runtime import Runtime, ensure_runtime
from .state import State, choose_ports
from .waiting import TIMEOUT, poll

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")
_ENDED = {"Succeeded", "Failed"}
_COLLECTIONS = {"resourceclaim": "/apis/resource.k8s.io/v1"}
_NO_CONNECTION = "TLS handshake timeout"
"""What kubectl prints if it has no connection after ten seconds. Its request was not sent, so it can be repeated."""


class Cluster:
    """A running cluster: etcd, API server, controller manager, scheduler, containerd and kubelet on this machine.

    The components are called `etcd`, `containerd`, `apiserver`, `controller-manager`, `scheduler` and `kubelet`.
    The only images are `localhost/busybox:1` and `localhost/pause:1`; no other image can be pulled. Pods reach the API
    server by its service, and the machine by the node's address. There is no kube-proxy for other services, and no DNS.

    api: the API server, for the administrator.
    """

    def __init__(self, layout: Layout, state: State, progress: Progress) -> None:
        self._layout, self._state, self._progress = layout, state, progress
        cache, version = Cache(Path(state.cache)), Version.parse(state.version)
        self._kube, self._runtime = cache.kube(version), Runtime.under(cache.runtime)
        self._authority = pki.Authority(layout.pki)
        self.api = Api(self._authority, f"https://{layout.service_address}:{state.ports['apiserver']}")
        parts = Components(layout, state, self._kube, self._runtime, self.api, audited=True)
        environment = {**parts.environment(), MARK: layout.name}
        self._daemons = Daemons(layout, state, parts.all(), environment, progress)

    # -- life --------------------------------------------------------------------------------------------------

    @classmethod
    def up(
        cls,
        version: str = DEFAULT_VERSION,
        *,
        alpha: bool = False,
        gates: Mapping[str, bool] | None = None,
        name: str = DEFAULT_NAME,
        cache: Cache | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Returns the cluster `name`, ready for pods. The first time it builds the binaries, which takes minutes.

        All beta gates are on; `alpha` also turns on all alpha gates; `gates` sets single gates by name. If the cluster
        runs already with the same version and gates, it is returned as it is. HarnessError if it runs with others, if
        this machine lacks something, or if a component does not start.
        """
        progress, cache, parsed = progress or Progress(), cache or Cache.from_env(), Version.parse(version)
        chosen = {"AllAlpha": alpha, "AllBeta": True, **(gates or {})}
        layout = Layout.of(name)
        _check_machine()
        with cleanup.lock(layout):
            running = cls.find(name, progress=progress)
            if running is not None:
                running.check_same(str(parsed), chosen)
                progress.note(f"cluster {name!r} is already up")
                return running
            require("the cluster", CLUSTER)
            ensure_runtime(cache, progress)
            ensure_kubernetes(cache, parsed, progress)
            with progress.step("removing the leftovers of earlier runs"):
                cleanup.remove(layout)
            ports = choose_ports(layout.service_address)
            state = State(name, str(parsed), chosen, str(cache.root), ports, cleanup.original_sysctls(layout))
            cluster = cls(layout, state, progress)
            cluster._start_all(cache)
        return cluster

    @classmethod
    def find(cls, name: str = DEFAULT_NAME, *, progress: Progress | None = None) -> Self | None:
        """Returns the cluster `name` if it came up completely and all its components run, else None."""
        layout = Layout.of(name)
        state = State.load(layout.state_file)
        if state is None or not state.ready:
            return None
        cluster = cls(layout, state, progress or Progress())
        return cluster if all(cluster.component_states().values()) else None

    def down(self) -> None:
        """Removes the cluster: processes, containers, mounts, cgroups, interfaces, files. It may be called twice."""
        take_down(self.name, self._progress)

    # -- properties --------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the cluster."""
        return self._layout.name

    @property
    def version(self) -> str:
        """The Kubernetes version, without a leading v."""
        return self._state.version

    @property
    def gates(self) -> dict[str, bool]:
        """The feature gates of every component."""
        return dict(self._state.gates)

    @property
    def alpha(self) -> bool:
        """Whether all alpha gates are on."""
        return self._state.gates["AllAlpha"]

    @property
    def server(self) -> str:
        """The API server's address."""
        return self.api.server

    @property
    def node_name(self) -> str:
        """The name of the only node."""
        return self._layout.node_name

    @property
    def dir(self) -> Path:
        """The folder with all files of this cluster, which is removed with it."""
        return self._layout.root

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of a member of system:masters."""
        return self._layout.kubeconfig

    @property
    def kubelet_dir(self) -> Path:
        """The kubelet's root instead of /var/lib/kubelet, with `plugins/`, `plugins_registry/`, `pod-resources/`."""
        return self._layout.kubelet_dir

    @property
    def cdi_dir(self) -> Path:
        """The folder from which containerd reads CDI specs, instead of /var/run/cdi."""
        return self._layout.cdi_dir

    @property
    def nri_socket(self) -> Path:
        """containerd's NRI socket, instead of /var/run/nri/nri.sock."""
        return self._layout.nri_socket

    @property
    def containerd_socket(self) -> Path:
        """containerd's socket (CRI, and `ctr --address`)."""
        return self._layout.containerd_socket

    @property
    def logs_dir(self) -> Path:
        """One log per component, `<component>.log`, and the API server's audit log, of which `AuditLog` is a part."""
        return self._layout.logs

    def log(self, component: str) -> Path:
        """The log of one component."""
        return self._layout.log(self._daemons.component(component).name)

    # -- use ---------------------------------------------------------------------------------------------------

    @property
    def kubectl_program(self) -> Path:
        """kubectl of the cluster's version."""
        return self._kube / "kubectl"

    def kubectl(self, *args: str, input: str | None = None, check: bool = True) -> str:  # noqa: A002 - subprocess's name
        """Runs kubectl of the cluster's version as administrator, and returns its output.

        `input` is its standard input. With `check`, a failure is a HarnessError with kubectl's message; without, the
        message is appended to the output.
        """
        program, cache = str(self.kubectl_program), self.dir / "discovery"
        command = [program, f"--kubeconfig={self.kubeconfig}", f"--cache-dir={cache}", *args]

        def connected() -> subprocess.CompletedProcess[str] | None:
            done = subprocess.run(command, input=input or "", capture_output=True, text=True, check=False)
            return None if _NO_CONNECTION in done.stderr else done

        done = poll(connected)
        if done is None:
            raise HarnessError(f"kubectl {' '.join(args)}: no connection to {self.server} within {TIMEOUT:g} s")
        if check and done.returncode != 0:
            raise HarnessError(f"kubectl {' '.join(args)} failed: {done.stderr.strip()}")
        return done.stdout if check else done.stdout + done.stderr

    def apply(self, *objects: Mapping[str, Any] | str) -> None:
        """Creates or changes objects in this order; each is a mapping or YAML."""
        texts = [manifest if isinstance(manifest, str) else json.dumps(manifest) for manifest in objects]
        self.kubectl("apply", "-f", "-", input="".join(f"---\n{text}\n" for text in texts))

    def service_account_kubeconfig(self, namespace: str, name: str, *, pod: str | None = None, hours: int = 24) -> Path:
        """Returns a kubeconfig that acts as an existing service account on this cluster's node for `hours`.

        The token is bound to the Node, or to `pod` of that namespace and account. So its requests have
        `authentication.kubernetes.io/node-name`, as those of a driver in a pod have: admission policies and
        `associated-node` permissions see the node. The token ends when the bound object is deleted.
        """
        bound = ["Node", self.node_name] if pod is None else ["Pod", pod]
        options = [f"--bound-object-kind={bound[0]}", f"--bound-object-name={bound[1]}", f"--duration={hours}h"]
        token = self.kubectl("create", "token", name, f"--namespace={namespace}", *options).strip()
        path = self.dir / f"{namespace}.{name}{f'.{pod}' if pod else ''}.kubeconfig"
        path.touch(mode=0o600)
        path.write_text(pki.kubeconfig(self.server, self._authority.certificate("ca"), {"token": token}))
        return path

    # -- wait --------------------------------------------------------------------------------------------------

    def wait_until(
        self, check: Callable[[], T | None], what: str, timeout: float = TIMEOUT, watch: Iterable[str] | None = None
    ) -> T:
        """Calls `check` until it returns something true, and returns that.

        HarnessError after `timeout` seconds, or at once when a component of `watch` has died, with the end of its log.
        By default, `watch` is every component that was not stopped.
        """
        return self._daemons.wait_until(check, what, timeout, watch)

    def wait_node_ready(self, timeout: float = TIMEOUT) -> None:
        """Waits until the node's Ready condition is True."""
        path = f"/api/v1/nodes/{self.node_name}"
        self.wait_until(lambda: _condition(self._try_get(path), "Ready"), f"node {self.node_name} Ready", timeout)

    def wait_namespace(self, name: str) -> None:
        """Waits until pods can be created in a new namespace, which need its default service account."""
        path = _path("serviceaccount", name, "default")
        self.wait_until(lambda: self._try_get(path), f"the default service account of namespace {name}")

    def wait_pod(
        self, name: str, *, namespace: str = "default", phase: str = "Running", timeout: float = TIMEOUT
    ) -> dict[str, Any]:
        """Waits until a pod reaches `phase`, and with Running until it is Ready as well; returns the pod.

        HarnessError with the pod's events if it does not, or if it ends in another phase.
        """
        path = _path("pod", namespace, name)
        seen: dict[str, Any] = {}

        def reached() -> Any:
            pod = self.api.get(path)
            seen.update(pod or {"status": {"phase": "absent"}})
            current = seen["status"]["phase"]
            if current in _ENDED - {phase}:
                raise HarnessError(f"pod {namespace}/{name} has ended")
            return pod if current == phase and (phase != "Running" or _condition(pod, "Ready")) else None

        try:
            return self.wait_until(reached, f"pod {namespace}/{name} {phase}", timeout)
        except HarnessError as error:
            uid = seen.get("metadata", {}).get("uid", "")  # not the events of earlier pods of this name
            which = (f"--namespace={namespace}", f"--field-selector=involvedObject.uid={uid}")
            events = self.kubectl("get", "events", *which, "--sort-by=.lastTimestamp", check=False)
            raise HarnessError(f"{error}; its status is {seen.get('status')}\n{events}") from None

    def wait_gone(self, resource: str, name: str, *, namespace: str = "default", timeout: float = TIMEOUT) -> None:
        """Waits until an object is deleted; `resource` is `pod`, `serviceaccount` or `resourceclaim`.

        HarnessError with the object, its events and the published slices if it stays.
        """
        where, path = f"--namespace={namespace}", _path(resource, namespace, name)
        try:
            self.wait_until(lambda: self.api.get(path) is None, f"{resource} {name} gone", timeout)
        except HarnessError as error:
            found = self.kubectl("get", f"{resource}/{name}", where, "--output=yaml", check=False)
            events = self.kubectl("get", "events", where, "--sort-by=.lastTimestamp", check=False)
            slices = self.kubectl("get", "resourceslices", "--output=yaml", check=False)
            raise HarnessError(f"{error}\n{found}\n{events}\n{slices}") from None

    def container_process(self, pod: str, *, namespace: str = "default") -> Process:
        """Returns the first process of a pod's only container; HarnessError if it has ended."""
        (status,) = self.api.get(_path("pod", namespace, pod))["status"]["containerStatuses"]
        file = self._layout.tasks / status["containerID"].removeprefix("containerd://") / "init.pid"
        found = Process.of(int(file.read_text())) if file.exists() else None
        if found is None:
            raise HarnessError(f"the container of pod {namespace}/{pod} has ended")
        return found

    # -- components --------------------------------------------------------------------------------------------

    def component_states(self) -> dict[str, bool]:
        """Returns for each component whether its process runs."""
        return self._daemons.states()

    def pid(self, component: str) -> int:
        """The process id of a running component."""
        return self._daemons.pid(component)

    def stop(self, component: str) -> None:
        """Asks a component to end and waits for it. Containers run on without the kubelet or containerd."""
        self._daemons.stop(component)

    def kill(self, component: str) -> None:
        """Kills a component at once, like a crash."""
        self._daemons.kill(component)

    def start(self, component: str, timeout: float = TIMEOUT) -> None:
        """Starts a stopped or crashed component and waits until it serves.

        For the kubelet and containerd, it then waits until the kubelet knows its pods and reaches their containers,
        unless the API server is down: then the kubelet cannot authenticate a request. For the API server and etcd, it
        also starts a controller manager or scheduler that has ended with it.
        """
        self._daemons.start(component, timeout)
        runs = self.component_states()
        if component in {"kubelet", "containerd"} and runs["kubelet"] and runs["apiserver"]:
            self.wait_until(self._kubelet_is_back, "the kubelet knows its pods and reaches containerd", timeout)

    def restart(self, component: str, timeout: float = TIMEOUT) -> None:
        """Stops a component and starts it again."""
        self.stop(component)
        self.start(component, timeout)

    # -- private -----------------------------------------------------------------------------------------------

    def _start_all(self, cache: Cache) -> None:
        """Starts all components. If one fails, keeps the logs in the cache and removes the rest."""
        try:
            with self._progress.step(f"starting Kubernetes {self.version}") as step:
                network.add_addresses(self._layout)
                configuration.prepare(self._layout, self._state, self.server, self._runtime)
                self._daemons.save()
                self._start_components(step)
        except BaseException as error:
            kept = _keep_logs(self._layout, cache.failed_logs(self.name))
            cleanup.remove(self._layout)
            if isinstance(error, HarnessError):
                raise HarnessError(f"{error}\nall logs are in {kept}") from error
            raise

    def _start_components(self, step: Step) -> None:
        """Starts each component as soon as those that it needs serve. The API server takes longest."""
        daemons, rest = self._daemons, ("controller-manager", "scheduler", "kubelet")
        for name in ("etcd", "containerd"):
            daemons.launch(name)
        step.detail = "etcd"
        daemons.wait_healthy("etcd")
        daemons.launch("apiserver")
        step.detail = "containerd"
        daemons.wait_healthy("containerd")
        configuration.import_image(self._layout, self._runtime)
        step.detail = "API server"
        daemons.wait_healthy("apiserver")
        for name in rest:
            daemons.launch(name)
        for name in rest:
            step.detail = name
            daemons.wait_healthy(name)
        step.detail = "node"
        self.wait_node_ready()
        self.wait_namespace("default")
        step.detail = f"node {self.node_name} is ready"
        self._state.ready = True
        daemons.save()

    def check_same(self, version: str, gates: dict[str, bool]) -> None:
        """Raises HarnessError if the cluster has another version or other gates."""
        if (self.version, self.gates) != (version, gates):
            raise HarnessError(
                f"cluster {self.name!r} runs Kubernetes {self.version} with gates {self.gates}, "
                f"not {version} with gates {gates}: take it down first, or choose another name"
            )

    def _kubelet_is_back(self) -> bool:
        """Tells whether the kubelet reaches containerd and knows each pod of the node.

        Until then it answers that there is no such pod, or that its connection to containerd is refused.
        """
        if self._ask_kubelet("/runningpods/") is None:
            return False
        known = self._ask_kubelet("/pods")
        listed = self._try_get(f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.node_name}")
        if known is None or listed is None:
            return False
        identities = {pod["metadata"]["uid"] for pod in known.get("items") or []}
        return all(pod["metadata"]["uid"] in identities for pod in listed["items"])

    def _ask_kubelet(self, path: str) -> Any:
        """Returns the JSON that the kubelet serves at `path`; None if it does not."""
        url = f"https://{self._layout.node_address}:{self._state.ports['kubelet']}{path}"
        try:
            status, body = fetch(url, self.api.trust)
        except OSError:
            return None
        return json.loads(body) if status == HTTPStatus.OK else None

    def _try_get(self, path: str) -> Any:
        """Returns what `api.get` does; None also while the API server does not answer, or has not made its roles."""
        try:
            return self.api.get(path)
        except (OSError, HarnessError):
            return None


def take_down(name: str = DEFAULT_NAME, progress: Progress | None = None) -> None:
    """Removes the cluster `name` in any state."""
    layout = Layout.of(name)
    _check_machine(starting=False)
    with cleanup.lock(layout), (progress or Progress()).step(f"taking down cluster {name!r}"):
        cleanup.remove(layout)


def _check_machine(*, starting: bool = True) -> None:
    if os.geteuid() != 0:
        raise HarnessError("the cluster's kubelet and containers need root: run this as root")
    if starting and (others := foreign_processes("kubelet")):
        raise HarnessError(
            f"another kubelet runs on this machine (process {others[0]}); a second one would replace its "
            "device-plugin socket"
        )


def _path(resource: str, namespace: str, name: str) -> str:
    """Returns the path of an object in a namespace."""
    return f"{_COLLECTIONS.get(resource, '/api/v1')}/namespaces/{namespace}/{resource}s/{name}"


def _condition(thing: Any, kind: str) -> bool:
    """Tells whether the condition `kind` in an object's status is True."""
    conditions = (thing or {}).get("status", {}).get("conditions", [])
    return any(condition["type"] == kind and condition["status"] == "True" for condition in conditions)


def _keep_logs(layout: Layout, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    if layout.logs.is_dir():
        shutil.copytree(layout.logs, target)
    return target
