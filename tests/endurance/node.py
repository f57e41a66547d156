"""One node made of files with three drivers: CPUs, memory, AMD GPUs, each a process of its own as on a node.

This process is the API server, the kubelet and the container runtime.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from uuid import uuid4

from dra_driver_amd.testing import mi300x, write_gpus

from dra_sdk.model import JSON
from dra_sdk.testing.machines import xeon
from dra_sdk.tools.simulator import AllocatedDevice, EmbeddedCluster, KubeletTiming, RunningPod
from dra_sdk.tools.simulator.kubelet.records import KubeletError, StoppedError
from dra_sdk.tools.simulator.nri import NriRuntime, RefusedError
from dra_sdk.tools.simulator.oci import NodeDeviceFiles
from dra_sdk.tools.simulator.scheduler import allocation

START_SECONDS: Final = 300.0
STOP_SECONDS: Final = 300.0
ATTEMPT_SECONDS: Final = 600.0
"""In which a step of a pod must succeed, however often it is repeated: longer than a driver may stop and start."""
PAUSE: Final = 0.1
GPUS: Final = 8
T = TypeVar("T")


@dataclass
class DriverUnderTest:
    """A driver and its process.

    name: as `dra-sdk run` knows it.
    driver: its DRA name.
    nri: whether it connects to the container runtime.
    life: how many processes it has had.
    changing: held while the process is replaced.
    """

    name: str
    driver: str
    nri: bool
    life: int = 0
    changing: threading.RLock = field(default_factory=threading.RLock)
    process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Of the process that runs."""
        assert self.process is not None
        return self.process.pid


class EnduranceNode:
    """The node below `folder`; a context manager that starts and ends everything.

    cluster: its API server and kubelet.
    runtime: its container runtime.
    drivers: the three drivers.
    containers: held while a pod's containers start or stop, so that the runtime is restarted between pods.
    restarting: held while the kubelet restarts.
    residents: pods that run from the beginning to the end.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.host = folder / "host"
        host = write_gpus(self.host, [mi300x() for _ in range(GPUS)], machine=xeon())
        for path in [each for each in host.dev.rglob("*") if each.is_file()]:
            path.unlink()
            os.mkfifo(path)  # a device node that needs no privilege to make
        boot_id = self.host / "proc/sys/kernel/random/boot_id"
        boot_id.parent.mkdir(parents=True, exist_ok=True)
        boot_id.write_text("00000000-0000-4000-8000-000000000001\n")
        self.cluster = EmbeddedCluster(timing=KubeletTiming(poll=0.2, reconcile=5.0), host=NodeDeviceFiles(self.host))
        self.runtime = NriRuntime(folder / "nri.sock")
        self.drivers = (
            DriverUnderTest("cpu", "dra.cpu", nri=True),
            DriverUnderTest("memory", "dra.memory", nri=True),
            DriverUnderTest("gpu-amd", "gpu.amd.com", nri=False),
        )
        self.containers = threading.Lock()
        self.restarting = threading.Lock()
        self.residents: list[RunningPod] = []
        self._gpus: list[str] = []

    def __enter__(self) -> Self:
        self.cluster.start()
        try:
            self.runtime.start()
            self.cluster.create_class("any")
            for each in self.drivers:
                self.start(each)
                self.wait_registered(each)
            slices = self.cluster.wait_slices("gpu.amd.com")
            self._gpus = [device["name"] for device in slices[0]["spec"]["devices"]]
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in self.drivers:
            if each.process is not None:
                self.end(each)
        self.runtime.stop()
        self.cluster.stop()

    # -- processes

    def start(self, driver: DriverUnderTest) -> None:
        """Start a process of the driver; its log is `NAME.log` in the folder."""
        command = [
            sys.executable, "-m", "dra_sdk.cli.main", "run", driver.name, "--node-name", self.cluster.node_name,
            "--kubeconfig", str(self.cluster.kubeconfig), "--kubelet-dir", str(self.cluster.registry_dir.parent),
            "--cdi-dir", str(self.cluster.cdi_dir), "--nri-socket", str(self.runtime.path),
            "--host-root", str(self.host), "--log-level", "error",
        ]  # fmt: skip
        with (self._folder / f"{driver.name}.log").open("ab") as log:
            driver.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        driver.life += 1

    def end(self, driver: DriverUnderTest, *, kill: bool = False) -> None:
        """End the process by SIGTERM, or by SIGKILL, and wait until kubelet and runtime know that it is gone.

        Otherwise `wait_registered` could take the connections of this process for those of the next one.
        """
        process, driver.process = driver.process, None
        assert process is not None
        process.kill() if kill else process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"{driver.name} has not ended {STOP_SECONDS:g} s after SIGTERM") from None
        _wait(lambda: not self._is_known(driver), f"the end of {driver.name}", STOP_SECONDS)
        if driver.nri:
            _wait(lambda: not self._is_plugin(driver), f"the end of the NRI connection of {driver.name}", STOP_SECONDS)

    def wait_registered(self, driver: DriverUnderTest) -> None:
        """Wait until the kubelet can call the driver, and the container runtime as well."""
        _wait(lambda: self._is_known(driver), f"the registration of {driver.name}", START_SECONDS)
        if driver.nri:
            _wait(lambda: self._is_plugin(driver), f"the NRI connection of {driver.name}", START_SECONDS)

    def _is_known(self, driver: DriverUnderTest) -> bool:
        """Whether the kubelet is connected with the driver; another thread may restart it meanwhile."""
        try:
            plugins = self.cluster.kubelet.plugins
        except StoppedError:
            return False
        return any(each.driver == driver.driver and each.notified and each.connected for each in plugins)

    def _is_plugin(self, driver: DriverUnderTest) -> bool:
        return any(each.endswith(f"-{driver.driver}") for each in self.runtime.plugins)

    # -- claims

    def _device(self, driver: str, slot: int) -> AllocatedDevice:
        """What the claim in a slot gets of a driver: one CPU, 64 MiB, or the slot's own GPU."""
        if driver == "gpu.amd.com":
            return AllocatedDevice(_request(driver), driver, self.cluster.node_name, self._gpus[slot])
        device, consumed = ("cpudevnuma001", {"dra.cpu/cpu": "1"})
        if driver == "dra.memory":
            device, consumed = ("memory-numa0", {"size": "64Mi"})
        more: dict[str, Any] = {"consumedCapacity": consumed}
        return AllocatedDevice(
            _request(driver), driver, self.cluster.node_name, device, share_id=str(uuid4()), more=more
        )

    def create_pod(self, name: str, drivers: Sequence[str], slot: int) -> JSON:
        """A pod on the node with one claim that has a request for each driver, allocated and reserved for it."""
        cluster = self.cluster
        claim = cluster.create_claim(name, {_request(each): "any" for each in drivers})
        spec = {
            "nodeName": cluster.node_name,
            "resourceClaims": [{"name": name, "resourceClaimName": name}],
            "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": name}]}}],
        }
        pod = cluster.api.create("pods", {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        consumer = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
        allocated = allocation(claim, {}, [self._device(each, slot) for each in drivers], cluster.node_name)
        status = {"allocation": allocated, "reservedFor": [consumer]}
        cluster.api.update_status("resourceclaims", {**claim, "status": status})
        return pod

    def sync_residents(self, driver: str) -> None:
        """Let the kubelet prepare the residents' claims again; AssertionError if the answer differs from the first."""
        for pod in self.residents:
            (ref,), (devices,) = pod.claims.values(), pod.devices.values()
            again = repeated(partial(self.cluster.kubelet.prepare, driver, [ref]))[ref.uid]
            first = [each for each in devices if each.driver == driver]
            assert list(again) == first, f"{driver} answers {again} for {ref}, before {first}"

    # -- what lies on the disk

    def state_files(self, driver: str) -> int:
        """Files of claims in the driver's plugin data directory."""
        return len(list((self.cluster.plugins_dir / driver).glob("claims*/*")))

    def specs(self, driver: str) -> int:
        """CDI specs of the driver."""
        return len(self.spec_files(driver))

    def spec_files(self, driver: str) -> list[Path]:
        """The driver's CDI specs, whose names begin with its own."""
        return [each for each in self.cluster.cdi_dir.iterdir() if driver in each.name]


def repeated(step: Callable[[], T], note: Callable[[Exception], None] = lambda _error: None) -> T:
    """Repeat a step until it succeeds, as the kubelet repeats the sync of a pod. `note` gets each error."""
    until = monotonic() + ATTEMPT_SECONDS
    while True:
        try:
            return step()
        except (KubeletError, RefusedError) as error:
            note(error)
            if monotonic() > until:
                raise
            sleep(PAUSE)


def _wait(condition: Callable[[], bool], what: str, seconds: float) -> None:
    until = monotonic() + seconds
    while not condition():
        assert monotonic() < until, f"{what} has not come within {seconds:g} s"
        sleep(PAUSE)


def _request(driver: str) -> str:
    return driver.replace(".", "-")
