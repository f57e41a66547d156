"""CPUs of containers on the real kubelet and containerd, as the kernel has them, through restarts of everything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from dra_sdk.hardware import CpuSet
from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import SHOW, container, pod, request, template
from tests.cluster.pods import cpus_of, end_container, read_pod

ALL = frozenset(os.sched_getaffinity(0))
PODS = int(os.environ.get("DRA_SDK_TEST_PODS", "12"))
"""How many pods come and go."""
LOOP = "i=0; while :; do i=$((i + 1)); if [ $((i % 5000)) = 0 ]; then echo $i > /count; fi; done"
"""Uses all CPU time that it gets, and writes how far it is."""
BUSY = 3
"""How many pods without claims run it beside the measured ones."""
SECONDS = 1.0
"""CPU time that each measured pod gets at least while it is measured."""
PATIENCE = 300.0
"""Seconds in which it must get it: this machine has other work too."""
CPUACCT = Path("/sys/fs/cgroup/cpuacct")

pytestmark = pytest.mark.skipif(len(ALL) < 2, reason="one CPU cannot be divided")


@pytest.fixture
def cpus(cluster: Cluster, drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> DriverUnderTest:
    """The CPU driver, which may give every CPU to claims, because this machine may have two alone."""
    monkeypatch.setenv("DRA_CPU_SHARED_POOL", "optional")
    return start(cluster, drivers)


def start(cluster: Cluster, drivers: Drivers) -> DriverUnderTest:
    driver = drivers.start("cpu", "dra.cpu", "--nri-socket", str(cluster.nri_socket))
    wait_connected(driver)
    return driver


def wait_connected(driver: DriverUnderTest, times: int = 1) -> None:
    driver.wait(lambda: driver.log_since_start().count("connected to containerd") >= times)


def run_claiming(cluster: Cluster, name: str, *, restart: str = "Never", command: str = SHOW) -> CpuSet:
    """Run a pod with one CPU of its own; returns that CPU, as the kernel has it."""
    cluster.apply(template("one-cpu", [request("cpu", "dra.cpu", capacity={"requests": {"dra.cpu/cpu": "1"}})]))
    main = container("main", {"name": "cpu"}, command=command)
    made = pod(name, [{"name": "cpu", "resourceClaimTemplateName": "one-cpu"}], main)
    made["spec"]["restartPolicy"] = restart
    cluster.apply(made)
    cluster.wait_pod(name)
    return cpus_of(cluster, name)


def run_unclaimed(cluster: Cluster, name: str, *, command: str = SHOW) -> None:
    cluster.apply(pod(name, [], container("main", command=command)))
    cluster.wait_pod(name)


def wait_cpus(cluster: Cluster, name: str, cpus: CpuSet) -> None:
    cluster.wait_until(lambda: cpus_of(cluster, name) == cpus, f"{name} runs on CPUs {sorted(cpus)}")


def delete(cluster: Cluster, name: str) -> None:
    cluster.kubectl("delete", "pod", name, "--wait=false")
    cluster.wait_gone("pod", name)


@pytest.mark.core
def test_a_claimed_cpu_belongs_to_one_pod_and_the_others_share_what_is_left(
    cluster: Cluster, cpus: DriverUnderTest
) -> None:
    run_unclaimed(cluster, "before")
    assert cpus_of(cluster, "before") == ALL
    mine = run_claiming(cluster, "mine")
    assert len(mine) == 1
    wait_cpus(cluster, "before", ALL - mine)
    run_unclaimed(cluster, "after")
    assert cpus_of(cluster, "after") == ALL - mine
    delete(cluster, "mine")
    cpus.wait_free()
    for name in ("before", "after"):
        wait_cpus(cluster, name, ALL)


def test_without_reserved_cpus_the_first_one_stays_for_pods_without_claims(cluster: Cluster, drivers: Drivers) -> None:
    driver = start(cluster, drivers)
    published = sum(
        each["attributes"]["numCPUs"]["int"] for piece in driver.slices() for each in piece["spec"]["devices"]
    )
    assert published == len(ALL) - 1
    mine = run_claiming(cluster, "mine")
    assert min(ALL) not in mine
    run_unclaimed(cluster, "beside")
    assert cpus_of(cluster, "beside") == ALL - mine


def test_two_pods_run_on_different_cpus(cluster: Cluster, cpus: DriverUnderTest) -> None:
    one, other = run_claiming(cluster, "one"), run_claiming(cluster, "other")
    assert len(one) == len(other) == 1
    assert one != other


def test_a_container_that_is_restarted_has_its_cpu_again(cluster: Cluster, cpus: DriverUnderTest) -> None:
    run_unclaimed(cluster, "beside")
    mine = run_claiming(cluster, "mine", restart="Always")
    end_container(cluster, "mine")

    def restarted() -> bool:
        (status,) = read_pod(cluster, "mine")["status"]["containerStatuses"]
        return bool(status["restartCount"] == 1 and status["ready"])

    cluster.wait_until(restarted, "the container runs again")
    assert cpus_of(cluster, "mine") == mine
    assert cpus_of(cluster, "beside") == ALL - mine


@pytest.mark.parametrize("component", ["kubelet", "containerd"])
def test_cpus_stay_through_a_restart_of_the_node(cluster: Cluster, cpus: DriverUnderTest, component: str) -> None:
    run_unclaimed(cluster, "beside")
    mine = run_claiming(cluster, "mine")
    cluster.restart(component)
    if component == "containerd":
        wait_connected(cpus, 2)
    assert cpus_of(cluster, "mine") == mine
    run_unclaimed(cluster, "later")
    assert cpus_of(cluster, "beside") == cpus_of(cluster, "later") == ALL - mine


def test_containers_that_started_without_the_driver_are_moved_later(cluster: Cluster, cpus: DriverUnderTest) -> None:
    mine = run_claiming(cluster, "mine")
    assert cpus.stop() == 0
    run_unclaimed(cluster, "meanwhile")
    assert cpus_of(cluster, "meanwhile") == ALL
    assert cpus_of(cluster, "mine") == mine
    cpus.start("--nri-socket", str(cluster.nri_socket))
    wait_cpus(cluster, "meanwhile", ALL - mine)
    assert cpus_of(cluster, "mine") == mine


def test_pods_come_and_go_and_never_share_a_cpu(cluster: Cluster, cpus: DriverUnderTest) -> None:
    run_unclaimed(cluster, "beside")
    for number in range(PODS):
        mine = run_claiming(cluster, f"pod-{number}")
        wait_cpus(cluster, "beside", ALL - mine)
        assert cpus_of(cluster, f"pod-{number}") == mine
        delete(cluster, f"pod-{number}")
        cpus.wait_free()
    wait_cpus(cluster, "beside", ALL)


@dataclass(frozen=True)
class Progress:
    """What pods that run LOOP have done so far.

    rounds: of the loop, by pod.
    seconds: CPU time by pod, then by CPU.
    """

    rounds: dict[str, int]
    seconds: dict[str, list[float]]

    @classmethod
    def read(cls, cluster: Cluster, pods: Sequence[str]) -> Progress:
        return cls({each: _rounds(cluster, each) for each in pods}, {each: _seconds(cluster, each) for each in pods})

    def on(self, cpus: CpuSet, pods: Sequence[str]) -> float:
        """CPU time of some pods on some CPUs."""
        return sum(self.seconds[each][cpu] for each in pods for cpu in cpus)


def _rounds(cluster: Cluster, name: str) -> int:
    file = Path(f"/proc/{cluster.container_process(name).pid}/root/count")
    # Empty for the moment in which the shell writes it.
    return int(cluster.wait_until(lambda: file.exists() and file.read_text().strip(), f"{name} works"))


def _seconds(cluster: Cluster, name: str) -> list[float]:
    groups = Path(f"/proc/{cluster.container_process(name).pid}/cgroup").read_text().splitlines()
    (path,) = [each.split(":", 2)[2] for each in groups if "cpuacct" in each.split(":", 2)[1].split(",")]
    return [int(each) / 1e9 for each in (CPUACCT / path.lstrip("/") / "cpuacct.usage_percpu").read_text().split()]


def rates(cluster: Cluster, measured: dict[str, CpuSet], beside: Sequence[str] = ()) -> tuple[dict[str, float], float]:
    """How fast pods work, and for how long those beside them ran on the CPUs of `mine`, in seconds.

    The speed is the rounds of a pod for each second that pods, itself included, ran on its CPUs. So processes outside
    of pods, which this machine has too, slow a pod down without effect on its speed.
    """
    pods = [*measured, *beside]
    before = Progress.read(cluster, pods)

    def worked() -> Progress | None:
        now = Progress.read(cluster, pods)
        done = (now.on(ALL, [each]) - before.on(ALL, [each]) >= SECONDS for each in measured)
        return now if all(done) else None

    after = cluster.wait_until(worked, f"{', '.join(measured)} have run for {SECONDS:g} s", PATIENCE)
    found = {
        each: (after.rounds[each] - before.rounds[each]) / (after.on(cpus, pods) - before.on(cpus, pods))
        for each, cpus in measured.items()
    }
    return found, after.on(measured["mine"], beside) - before.on(measured["mine"], beside)


@pytest.mark.skipif(not CPUACCT.exists(), reason="only cgroup v1 counts the time of a container on each CPU")
def test_busy_pods_do_not_slow_down_the_one_with_a_cpu_of_its_own(cluster: Cluster, cpus: DriverUnderTest) -> None:
    mine = run_claiming(cluster, "mine", command=LOOP)
    run_unclaimed(cluster, "shared", command=LOOP)
    measured = {"mine": mine, "shared": ALL - mine}
    alone, _ = rates(cluster, measured)
    beside = [f"busy-{number}" for number in range(BUSY)]
    for each in beside:
        run_unclaimed(cluster, each, command=LOOP)
    crowded, disturbed = rates(cluster, measured, beside)
    kept = {each: crowded[each] / alone[each] for each in measured}
    print(f"speed beside {BUSY} busy pods, alone it is 1: {kept}; they ran on its CPU for {disturbed:g} s")
    assert disturbed == 0
    assert kept["mine"] > 0.7
    if len(ALL - mine) == 1:
        assert kept["shared"] < 0.5
