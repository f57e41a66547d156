"""A container runtime for a driver's hooks about pods and containers: real NRI on a unix socket, without containers.

    with driver.nri() as runtime:
        container = runtime.create_container(driver.prepare(claim("cpus")))
        assert container.cpus == {2, 3}

The driver is a plugin of the runtime as on a node, and stays connected through `driver.restart()` and
`runtime.restart()`. What a container has is read from its cgroup, which consists of files on the node: the runtime
writes them, and the SDK writes them where the runtime cannot be asked to.
"""

from __future__ import annotations

import itertools
import uuid
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_sdk.hardware.cpuset import format_cpuset, parse_cpuset
from dra_sdk.model.container import ContainerResources
from dra_sdk.node.nri.driver_plugin import DriverPlugin
from dra_sdk.node.nri.messages import fill, resources_of
from dra_sdk.testing.node import FakeNode
from dra_sdk.testing.prepared import DEFAULT_CONTAINER, PreparedClaim, inject
from dra_sdk.tools.simulator.nri import NriRuntime
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

WAIT_SECONDS: Final = 30.0
_CGROUPS: Final = "/sys/fs/cgroup"
_CONTROLLERS: Final = f"{_CGROUPS}/cgroup.controllers"
_REQUEST_TIMEOUT: Final = 20.0  # seconds: a test's machine may be busy


class FakeRuntime:
    """A container runtime on a node. `DriverHarness.nri` makes it.

    node: the node.
    simulated: the runtime's side of NRI, with all calls of the plugin.
    """

    def __init__(
        self, node: FakeNode, socket: Path, nri_version: str, request_timeout: float = _REQUEST_TIMEOUT
    ) -> None:
        self.node = node
        self.simulated = NriRuntime(
            socket, nri_version=nri_version, request_timeout=request_timeout, changed=self._write_cgroup
        )
        self._plugins: list[DriverPlugin] = []
        self._numbers = itertools.count(1)
        if not node.path(_CONTROLLERS).exists():
            node.file(_CONTROLLERS, "cpuset cpu hugetlb\n")

    def connect(self, plugin: DriverPlugin) -> None:
        """Start a plugin and wait until it is synchronized."""
        plugin.start()
        self._plugins.append(plugin)
        self._wait_connected(plugin, 1)

    def disconnect(self, plugin: DriverPlugin | None = None) -> None:
        """Stop a plugin, as when the driver's process ends; None: all. One that is not connected is ignored."""
        for connected in [known for known in self._plugins if plugin in {None, known}]:
            self._plugins.remove(connected)
            if not connected.stop(WAIT_SECONDS):
                raise AssertionError(f"a hook of the driver still runs after {WAIT_SECONDS:g} s")

    def restart(self) -> None:
        """End and start again; containers go on. Return when all drivers are connected again."""
        before = [(plugin, plugin.connection.connections) for plugin in self._plugins]
        self.simulated.stop()
        self.simulated.start()
        for plugin, connections in before:
            self._wait_connected(plugin, connections + 1)

    def clear(self) -> None:
        """End all pods and containers without events, as a reboot of the node does."""
        for container in list(self.simulated.containers):
            self.simulated.remove_container(container)
        for pod in list(self.simulated.pods):
            self.simulated.remove_pod(pod)

    def synchronize_soon(self) -> None:
        """Return when what drivers want is applied, after claims were prepared or unprepared."""
        for plugin in self._plugins:
            plugin.updates.claims_changed()
        self.wait_applied()

    def wait_applied(self) -> None:
        """Wait until containers have what `dra_synchronize` wants; AssertionError if that takes too long."""
        if not all(plugin.updates.wait_applied(WAIT_SECONDS) for plugin in self._plugins):
            raise AssertionError(f"the answer of dra_synchronize is not applied after {WAIT_SECONDS:g} s")

    def run_pod(self, *claims: PreparedClaim, name: str = "", namespace: str = "default") -> FakePod:
        """Start the sandbox of a pod that uses these claims. If the driver's hook fails, its containers are refused.

        Without a name it is the pod that the first claim is reserved for, otherwise a new one.
        """
        if claims:
            namespace = claims[0].ref.namespace
            reserved = claims[0].claim.get("status", {}).get("reservedFor") or [{}]
            name = name or reserved[0].get("name", "")
        number = next(self._numbers)
        name = name or f"pod-{number}"
        pod = pb.PodSandbox(id=f"sandbox-{number}", name=name, uid=pod_uid(namespace, name), namespace=namespace)
        pod.linux.cgroup_parent = f"/kubepods/pod{pod.uid}"
        pod.linux.namespaces.add(type="network", path=f"/var/run/netns/{pod.id}")
        self.simulated.run_pod(pod)
        self.wait_reported()
        return FakePod(self, pod, claims)

    def create_container(
        self,
        *claims: PreparedClaim,
        name: str = DEFAULT_CONTAINER,
        pod: FakePod | None = None,
        env: Mapping[str, str] | None = None,
        resources: ContainerResources | None = None,
    ) -> FakeContainer:
        """Create and start a container that uses these claims; RefusedError if the driver fails it.

        name: its name. It uses those requests of the claims that `DriverHarness.prepare` got for this name.
        pod: its pod; None starts one.
        env: more environment variables.
        resources: what the kubelet asks for.
        """
        in_pod = pod or self.run_pod(*claims)
        variables = {**(_by_cdi(claims, name) if claims else {}), **(env or {})}
        number = next(self._numbers)
        container = pb.Container(
            id=f"container-{number}",
            pod_sandbox_id=in_pod.sandbox.id,
            name=name,
            env=[f"{key}={value}" for key, value in variables.items()],
        )
        container.linux.cgroups_path = f"{in_pod.sandbox.linux.cgroup_parent}/{container.id}"
        fill(container.linux.resources, resources or ContainerResources())
        self.simulated.create_container(container)
        self.simulated.start_container(container.id)
        self.wait_reported()
        return FakeContainer(self, container.id, name)

    def cgroup(self, container: pb.Container) -> Path:
        """Return the directory that is a container's cgroup."""
        return self.node.path(_CGROUPS + container.linux.cgroups_path)

    def _write_cgroup(self, container: pb.Container) -> None:
        """Write what a runtime writes when it creates or changes a container."""
        resources, directory = resources_of(container.linux.resources), f"{_CGROUPS}{container.linux.cgroups_path}"
        quota = "max" if resources.cpu_quota in {None, -1} else str(resources.cpu_quota)
        self.node.file(f"{directory}/cpuset.cpus", format_cpuset(resources.cpus or ()))
        self.node.file(f"{directory}/cpuset.mems", format_cpuset(resources.mems or ()))
        self.node.file(f"{directory}/cpu.max", quota)
        for size, limit in resources.hugepage_limits.items():
            self.node.file(f"{directory}/hugetlb.{size}.max", str(limit))

    def wait_reported(self) -> None:
        """Wait until drivers' reports about a pod are in the claim's status: they follow their answer."""
        if not all(plugin.reports.wait(WAIT_SECONDS) for plugin in self._plugins):
            raise AssertionError(f"what hooks have reported is not written after {WAIT_SECONDS:g} s")

    def _wait_connected(self, plugin: DriverPlugin, connections: int) -> None:
        connected = plugin.connection.wait_synchronized(WAIT_SECONDS, connections)
        if not (connected and self.simulated.wait_plugins(len(self._plugins), WAIT_SECONDS)):
            raise AssertionError(f"the driver has not connected within {WAIT_SECONDS:g} s: {self.simulated.problems}")


def _by_cdi(claims: Sequence[PreparedClaim], name: str) -> dict[str, str]:
    """Return the variables that a container has by CDI. Warns as `PreparedClaim.container`, but of joined variables."""
    view, overwritten = inject(claims, name)
    joined = {variable for claim in claims for device in claim.used(name) for variable in device.env_lists}
    for problem in overwritten:
        if not any(problem.startswith(f"environment variable {variable} ") for variable in joined):
            warnings.warn(f"container {name}: {problem}", stacklevel=3)
    return view.env


@dataclass(frozen=True)
class FakePod:
    """A pod whose sandbox runs.

    runtime: its runtime.
    sandbox: as NRI has it.
    claims: the claims that it uses.
    """

    runtime: FakeRuntime
    sandbox: pb.PodSandbox
    claims: tuple[PreparedClaim, ...] = ()

    def create_container(
        self,
        *,
        name: str = DEFAULT_CONTAINER,
        env: Mapping[str, str] | None = None,
        resources: ContainerResources | None = None,
    ) -> FakeContainer:
        """Create and start a container that uses the pod's claims; arguments as `FakeRuntime.create_container`."""
        return self.runtime.create_container(*self.claims, name=name, pod=self, env=env, resources=resources)

    def stop(self) -> None:
        """Stop the sandbox, after its containers."""
        self.runtime.simulated.stop_pod(self.sandbox.id)
        self.runtime.wait_reported()

    def remove(self) -> None:
        """Remove the sandbox."""
        self.runtime.simulated.remove_pod(self.sandbox.id)


@dataclass(frozen=True)
class FakeContainer:
    """A container that was created and started.

    runtime: its runtime.
    id: its id.
    name: its name in the pod.
    """

    runtime: FakeRuntime
    id: str
    name: str

    @property
    def cpus(self) -> frozenset[int] | None:
        """The CPUs in its cgroup; None if they were never set, so that it may use all."""
        return parse_cpuset(self._read("cpuset.cpus")) or None

    @property
    def mems(self) -> frozenset[int] | None:
        """The NUMA nodes of memory in its cgroup; None if they were never set."""
        return parse_cpuset(self._read("cpuset.mems")) or None

    @property
    def cpu_quota(self) -> int | None:
        """Its CPU quota in microseconds of each period; None without a limit."""
        quota = self._read("cpu.max").split()[0]
        return None if quota == "max" else int(quota)

    @property
    def hugepage_limits(self) -> dict[str, int]:
        """Its limits of huge pages in bytes, by page size."""
        files = self.runtime.cgroup(self._message).glob("hugetlb.*.max")
        return {file.name.split(".")[1]: int(file.read_text()) for file in files}

    @property
    def env(self) -> dict[str, str]:
        """Its environment, with what the driver has added."""
        return dict(variable.partition("=")[::2] for variable in self._message.env)

    @property
    def annotations(self) -> dict[str, str]:
        """Its annotations, with what the driver has added."""
        return dict(self._message.annotations)

    def update(self, resources: ContainerResources) -> None:
        """Change its resources as the kubelet does, for an in-place resize; RefusedError."""
        message = pb.LinuxResources()
        fill(message, resources)
        self.runtime.simulated.update_container(self.id, message)

    def stop(self) -> None:
        """Stop and remove it."""
        directory = self.runtime.cgroup(self._message)
        self.runtime.simulated.stop_container(self.id)
        self.runtime.simulated.remove_container(self.id)
        for file in directory.iterdir():
            file.unlink()
        directory.rmdir()

    @property
    def _message(self) -> pb.Container:
        return self.runtime.simulated.containers[self.id]

    def _read(self, name: str) -> str:
        return (self.runtime.cgroup(self._message) / name).read_text()


def pod_uid(namespace: str, name: str) -> str:
    """Return the UID of a pod in tests."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{namespace}/{name}"))
