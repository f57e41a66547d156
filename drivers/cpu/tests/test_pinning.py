"""Which CPUs containers may use: by example, and rules that hold after any sequence of events on a node."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from dra_driver_cpu import CpuConfig, CpuDriver, CpuSettings
from dra_driver_cpu.pinning import EmptySharedPoolError, NoCpuError, Pinning, check_shared_pool
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dra_sdk import HeldClaim, HeldDevice
from dra_sdk.hardware import Host, format_cpuset, parse_cpuset
from dra_sdk.nri import Container, ContainerResources, PodSandbox
from dra_sdk.testing import (
    DriverHarness,
    FakeContainer,
    FakeNode,
    NotAllocatedError,
    PreparedClaim,
    RefusedError,
    claim,
    request,
)
from dra_sdk.testing.sysfs import FakeMachine, regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]
pytestmark = pytest.mark.timeout(300)  # a plugin that connects again waits a little each time

MACHINE = regular_machine(sockets=2, cores=4)
"""CPUs 0-3,8-11 in NUMA node 0, and 4-7,12-15 in node 1."""
NOBODY = PodSandbox(id="p", namespace="default", name="pod", uid="pod-uid")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return MACHINE.write(tmp_path / "host")


def held(uid: str, cpus: str, **data: str) -> HeldClaim:
    """A claim with one device for each of the lists in `cpus`, separated by blanks; their requests are r0, r1, …"""
    devices = [HeldDevice(f"r{n}", "node", "d", data={"cpus": part, **data}) for n, part in enumerate(cpus.split())]
    return HeldClaim("default", f"claim-{uid}", uid, devices)


def container(*claims: HeldClaim, name: str = "main", **env: str) -> Container:
    return Container(id=name, name=name, pod=NOBODY, claims=claims, env=env)


def only(whole: HeldClaim, *requests: str) -> HeldClaim:
    """The claim as a container sees it that names these requests."""
    return replace(whole, devices=[device for device in whole.devices if device.base_request in requests])


def pinning(host: Host, *claims: HeldClaim, reserved: str = "") -> Pinning:
    return Pinning.read(host, parse_cpuset(reserved), claims)


def resources(state: Pinning, one: Container) -> ContainerResources:
    (answer,) = state.synchronize([one]).values()
    assert isinstance(answer, ContainerResources)
    return answer


def given_to(state: Pinning, one: Container) -> str:
    return format_cpuset(resources(state, one).cpus or ())


def refusal(state: Pinning, one: Container) -> str:
    (answer,) = state.synchronize([one]).values()
    assert isinstance(answer, NoCpuError)
    return str(answer)


def test_a_container_has_the_cpus_of_its_claim_and_others_the_rest(host: Host) -> None:
    mine, other = held("a", "1,9"), held("b", "4-5,12-13")
    state = pinning(host, mine, other, reserved="0")
    assert given_to(state, container(mine)) == "1,9"
    assert given_to(state, container()) == "2-3,6-8,10-11,14-15"


def test_a_container_with_several_claims_has_the_cpus_of_all(host: Host) -> None:
    claims = [held("a", "1,9"), held("b", "4-5")]
    assert given_to(pinning(host, *claims), container(*claims)) == "1,4-5,9"


def test_containers_split_a_claim_and_what_none_uses_stays_reserved(host: Host) -> None:
    whole = held("a", "1 2 3")
    state = pinning(host, whole)
    assert given_to(state, container(only(whole, "r0"))) == "1"
    assert given_to(state, container(only(whole, "r1"))) == "2"
    assert given_to(state, container()) == "0,4-15"


def test_init_side_and_main_containers_share_a_claim(host: Host) -> None:
    whole = held("a", "1,9")
    assert {given_to(pinning(host, whole), container(whole, name=name)) for name in ("init", "side", "main")} == {"1,9"}


def test_memory_comes_from_the_numa_nodes_of_the_cpus(host: Host) -> None:
    far, both = held("a", "4-5"), held("b", "1 6")
    state = pinning(host, far, both)
    assert resources(state, container(far)).mems == {1}
    assert resources(state, container(both)).mems == {0, 1}
    assert resources(state, container()).mems is None


def test_the_memory_of_a_claim_that_says_none_stays_as_it_is(host: Host) -> None:
    near, anywhere = held("a", "4-5", memory="local"), held("b", "1", memory="none")
    state = pinning(host, near, anywhere)
    assert resources(state, container(anywhere)).mems is None
    assert resources(state, container(near, anywhere)).mems is None


def test_a_numa_node_without_memory_is_never_named(host: Host) -> None:
    """The kernel refuses it in `cpuset.mems`."""
    (host.sys / "devices/system/node/has_memory").write_text("0\n")
    both, far = held("a", "1 6"), held("b", "4-5")
    state = pinning(host, both, far)
    assert resources(state, container(both)).mems == {0}
    assert resources(state, container(far)).mems is None


def test_a_kernel_without_numa_support_has_node_0(tmp_path: Path) -> None:
    host = replace(regular_machine(), numa=False).write(tmp_path)
    one = held("a", "1,5")
    assert resources(pinning(host, one), container(one)).mems == {0}


def test_the_driver_of_memory_sets_the_nodes_of_a_container_that_uses_both(host: Host) -> None:
    """A runtime refuses two plugins that set the nodes of one container."""
    one = held("a", "4-5")
    assert resources(pinning(host, one), container(one, DRA_MEMS_b="0")) == ContainerResources(
        cpus=parse_cpuset("4-5"), cpu_quota=-1
    )


def test_the_quota_is_removed_unless_a_claim_keeps_it(host: Host) -> None:
    free, limited = held("a", "1", quota="remove"), held("b", "2", quota="keep")
    state = pinning(host, free, limited)
    quotas = [resources(state, container(*claims)).cpu_quota for claims in ([free], [limited], [], [free, limited])]
    assert quotas == [-1, None, None, None]


def test_cpus_that_are_offline_are_left_out(tmp_path: Path) -> None:
    host = MACHINE.offlined(9, 15).write(tmp_path)
    one, gone = held("a", "1,9"), held("b", "15")
    state = pinning(host, one, gone)
    assert given_to(state, container(one)) == "1"
    assert given_to(state, container()) == "0,2-8,10-14"
    assert refusal(state, container(gone)) == "of the CPUs of its claims, none is online"


def test_containers_without_claims_run_on_reserved_cpus_if_no_others(tmp_path: Path) -> None:
    host = regular_machine(cores=4, threads=1).offlined(3).write(tmp_path)
    assert given_to(pinning(host, held("a", "1"), reserved="0"), container()) == "2"
    assert given_to(pinning(host, held("a", "1-2"), reserved="0"), container()) == "0"


def test_where_nothing_is_left_no_empty_list_is_sent(tmp_path: Path) -> None:
    state = pinning(regular_machine(cores=2, threads=1).write(tmp_path), held("a", "0-1"))
    assert refusal(state, container()) == "claims hold all online CPUs"


def test_a_claim_that_is_still_being_prepared_gets_no_container(host: Host) -> None:
    begun = HeldClaim("default", "c", "a", [HeldDevice("r0", "node", "d")], complete=False)
    assert refusal(pinning(host, begun), container(begun)) == "of the CPUs of its claims, none is online"


def test_a_claim_that_leaves_nothing_for_others_is_refused_with_the_numbers() -> None:
    online = parse_cpuset("0-3")
    check_shared_pool(online, parse_cpuset("0-1,7"), parse_cpuset("2"))
    with pytest.raises(EmptySharedPoolError) as error:
        check_shared_pool(online, parse_cpuset("0-1,7"), parse_cpuset("2-3"))
    assert str(error.value) == (
        "2 CPUs for this claim (2-3) would leave none for containers without claims: 4 CPUs are online (0-3), none of "
        "them is reserved, other claims hold 2 (0-1); reserve a CPU, ask for fewer, or wait until another claim has "
        "ended"
    )


@pytest.mark.parametrize("mode", ["grouped", "individual", "partitionable"])
def test_what_is_published_can_be_had_and_leaves_one_cpu(dra_node: FakeNode, dra_driver: Any, mode: str) -> None:
    dra_node.machine(regular_machine(cores=4, threads=1))
    driver = dra_driver(CpuDriver, settings=CpuSettings(device_mode=mode))
    with driver.nri() as runtime:
        beside = runtime.create_container()
        for _ in range(3):
            driver.prepare(claim("cpu"))
        assert beside.cpus == {0}
        with pytest.raises(NotAllocatedError):
            driver.allocate(claim("cpu"))


def test_the_last_cpu_is_refused_while_a_claim_holds_the_kept_one(dra_node: FakeNode, dra_driver: Any) -> None:
    dra_node.machine(regular_machine(cores=2, threads=1))
    before = dra_driver(CpuDriver, settings=CpuSettings(device_mode="individual", shared_pool="optional"))
    first = before.prepare(claim("cpu"))
    driver = dra_driver(CpuDriver, settings=CpuSettings(device_mode="individual"))
    last = driver.allocate(claim("cpu"))
    with pytest.raises(
        EmptySharedPoolError, match=r"2 CPUs are online \(0-1\), none of them is reserved, other claims hold 1 \(0\)"
    ):
        driver.prepare(last)
    driver.unprepare(first)
    driver.prepare(last)


def test_on_a_node_where_every_pod_has_claims_the_last_cpu_can_be_had(dra_node: FakeNode, dra_driver: Any) -> None:
    dra_node.machine(regular_machine(cores=2, threads=1))
    driver = dra_driver(CpuDriver, settings=CpuSettings(shared_pool="optional"))
    with driver.nri() as runtime:
        for _ in range(2):
            driver.prepare(claim(request("cpu")))
        with pytest.raises(RefusedError, match="claims hold all online CPUs"):
            runtime.create_container()


def test_isolated_cpus_are_shared_only_if_no_others_are_left(tmp_path: Path) -> None:
    host = replace(regular_machine(cores=4, threads=1), isolated=parse_cpuset("2-3")).write(tmp_path)
    assert given_to(pinning(host), container()) == "0-1"
    assert given_to(pinning(host, held("a", "1"), reserved="0"), container()) == "2-3"


# -- with a container runtime


@pytest.mark.parametrize("version", ["0.3.0", "0.8.0", "0.12.0", "0.12.1"])
def test_containers_are_pinned_on_every_version_of_nri(dra_node: FakeNode, dra_driver: Any, version: str) -> None:
    dra_node.machine(MACHINE)
    driver = dra_driver(CpuDriver, settings=CpuSettings(reserved_cpus=parse_cpuset("0")))
    with driver.nri(version) as runtime:
        before = runtime.create_container()
        prepared = driver.prepare(claim(request("cpu", capacity={"dra.cpu/cpu": "2"})))
        pinned = runtime.create_container(prepared, resources=ContainerResources(cpu_quota=200000))
        assert (pinned.cpus, pinned.mems, pinned.cpu_quota) == ({1, 9}, {0}, None)
        assert before.cpus == runtime.create_container().cpus == parse_cpuset("2-8,10-15")
        runtime.restart()
        driver.restart()
        assert (pinned.cpus, before.cpus) == ({1, 9}, parse_cpuset("2-8,10-15"))
        pinned.stop()
        driver.unprepare(prepared)
        assert before.cpus == parse_cpuset("1-15")


def test_a_claim_keeps_the_quota_and_the_memory_if_it_says_so(dra_node: FakeNode, dra_driver: Any) -> None:
    dra_node.machine(MACHINE)
    driver = dra_driver(CpuDriver)
    with driver.nri() as runtime:
        prepared = driver.prepare(claim("cpu", config=CpuConfig(cfs_quota="keep", memory_policy="none")))
        pinned = runtime.create_container(prepared, resources=ContainerResources(cpu_quota=50000))
        assert (pinned.cpus, pinned.mems, pinned.cpu_quota) == ({8}, None, 50000)


def test_a_pod_that_joins_a_claim_is_pinned_and_a_stranger_that_names_it_is_refused(
    dra_node: FakeNode, dra_driver: Any
) -> None:
    dra_node.machine(MACHINE)
    driver = dra_driver(CpuDriver)
    with driver.nri() as runtime:
        shared = claim("cpu")
        first = driver.prepare(shared, pod="first")
        assert runtime.create_container(first).cpus == {8}
        second = driver.prepare(shared, pod="second")
        assert second.ref == first.ref
        assert runtime.create_container(second, pod=runtime.run_pod(second, name="second")).cpus == {8}
        stranger = runtime.run_pod(name="stranger")
        assert 8 not in (runtime.create_container(pod=stranger).cpus or {8})
        with pytest.raises(RefusedError, match="is not reserved for pod default/stranger"):
            runtime.create_container(pod=stranger, env=first.container().env)


def test_the_quota_of_the_pod_is_removed_too(dra_node: FakeNode, dra_driver: Any) -> None:
    dra_node.machine(MACHINE)
    driver = dra_driver(CpuDriver)
    with driver.nri() as runtime:
        for quota, left in (("remove", "max"), ("keep", "200000")):
            prepared = driver.prepare(claim("cpu", config=CpuConfig(cfs_quota=quota)), pod=quota)
            (uid,) = [held_claim.pods[0] for held_claim in driver.held if held_claim.uid == prepared.ref.uid]
            limit = dra_node.file(f"/sys/fs/cgroup/kubepods/pod{uid}/cpu.max", "200000")
            runtime.run_pod(prepared)
            assert limit.read_text() == left


def test_a_pod_whose_cgroup_is_not_visible_starts_all_the_same(dra_node: FakeNode, dra_driver: Any) -> None:
    dra_node.machine(MACHINE)
    driver = dra_driver(CpuDriver)
    with driver.nri() as runtime:
        assert runtime.create_container(driver.prepare(claim("cpu"))).cpus == {8}


def test_a_running_container_whose_claim_ended_has_the_shared_pool(dra_node: FakeNode, dra_driver: Any) -> None:
    """Its CPUs may be those of another claim by now."""
    dra_node.machine(MACHINE)
    driver = dra_driver(CpuDriver)
    with driver.nri() as runtime:
        prepared = driver.prepare(claim("cpu"))
        running = runtime.create_container(prepared)
        assert running.cpus == {8}
        driver.unprepare(prepared)
        assert running.cpus == parse_cpuset("0-15")


def test_a_container_whose_claim_has_ended_is_refused(dra_node: FakeNode, dra_driver: Any) -> None:
    dra_node.machine(MACHINE)
    driver = dra_driver(CpuDriver)
    with driver.nri() as runtime:
        prepared = driver.prepare(claim("cpu"))
        env = prepared.container().env
        driver.unprepare(prepared)
        with pytest.raises(RefusedError, match=r"which driver dra\.cpu does not hold"):
            runtime.create_container(env=env)


@dataclass
class Running:
    """A container that runs.

    container: the container.
    uses: the UID of its claim, and its name, which says the requests that it uses; None for no claim.
    """

    container: FakeContainer
    uses: tuple[str, str] | None


class NodeLife(RuleBasedStateMachine):
    """A node with the driver, a kubelet that prepares claims, and a container runtime: any sequence of events."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.node = FakeNode(Path(self.stack.enter_context(tempfile.TemporaryDirectory())))
        self.claims: dict[str, PreparedClaim] = {}
        self.running: list[Running] = []

    def teardown(self) -> None:
        self.stack.close()

    @initialize(
        machine=st.sampled_from([regular_machine(cores=2, threads=1), regular_machine(sockets=2, cores=2)]),
        reserved=st.sampled_from(["", "0", "1"]),
        version=st.sampled_from(["0.8.0", "0.12.1"]),
    )
    def start(self, machine: FakeMachine, reserved: str, version: str) -> None:
        self.reserved = parse_cpuset(reserved)
        self.all = frozenset(cpu.id for cpu in machine.cpus)
        self.node.machine(machine)
        self.driver = DriverHarness(CpuDriver, self.node, settings=CpuSettings(reserved_cpus=self.reserved))
        self.runtime = self.stack.enter_context(self.driver.nri(version))

    @rule(numbers=st.lists(st.integers(1, 3), min_size=1, max_size=2))
    def prepare(self, numbers: list[int]) -> None:
        requests = [request(f"r{n}", capacity={"dra.cpu/cpu": str(number)}) for n, number in enumerate(numbers)]
        names = [entry["name"] for entry in requests]
        try:
            prepared = self.driver.prepare(claim(*requests), containers={"all": names} | {n: [n] for n in names})
        except NotAllocatedError:  # what the scheduler allocates can be had
            return
        self.claims[prepared.ref.uid] = prepared

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def end_pod(self, data: st.DataObject) -> None:
        """The kubelet unprepares a claim when its containers have ended."""
        uid = data.draw(st.sampled_from(sorted(self.claims)))
        for running in [running for running in self.running if running.uses and running.uses[0] == uid]:
            self.stop(running)
        self.driver.unprepare(self.claims.pop(uid))

    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(["", *sorted(self.claims)]))
        uses = (uid, data.draw(st.sampled_from(sorted(self.claims[uid].containers)))) if uid else None
        self.running.append(Running(self.created(uses), uses))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def restart_container(self, data: st.DataObject) -> None:
        """The kubelet creates it again, without another prepare."""
        chosen = data.draw(st.sampled_from(self.running))
        before = chosen.container.cpus
        self.stop(chosen)
        again = Running(self.created(chosen.uses), chosen.uses)
        self.running.append(again)
        assert again.container.cpus == before

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        self.stop(data.draw(st.sampled_from(self.running)))

    @rule(while_away=st.integers(0, 2))
    def restart_driver(self, while_away: int) -> None:
        """Containers that start while the driver is away run anywhere, until it is back."""
        before = [running.container.cpus for running in self.running]
        self.runtime.disconnect()
        away = [Running(self.created(None), None) for _ in range(while_away)]
        self.driver.restart()
        assert [running.container.cpus for running in self.running] == before
        self.running += away

    @precondition(lambda self: self.running)
    @rule()
    def restart_runtime(self) -> None:
        before = [running.container.cpus for running in self.running]
        self.runtime.restart()
        assert [running.container.cpus for running in self.running] == before

    @invariant()
    def nobody_runs_on_the_cpus_of_another(self) -> None:
        held = {} if not self.claims else {held_claim.uid: self.cpus(held_claim) for held_claim in self.driver.held}
        assert set(held) == set(self.claims)
        taken = frozenset().union(*held.values())
        assert len(taken) == sum(map(len, held.values()))
        assert not taken & self.reserved
        for running in self.running:
            cpus = running.container.cpus
            if running.uses is None:
                assert cpus
                assert cpus == (self.all - self.reserved - taken or self.reserved)
            else:
                assert cpus == self.cpus_of_container(*running.uses)

    def created(self, uses: tuple[str, str] | None) -> FakeContainer:
        if uses is None:
            return self.runtime.create_container()
        return self.runtime.create_container(self.claims[uses[0]], name=uses[1])

    def stop(self, running: Running) -> None:
        running.container.stop()
        self.running.remove(running)

    def cpus_of_container(self, uid: str, name: str) -> frozenset[int]:
        (whole,) = [held_claim for held_claim in self.driver.held if held_claim.uid == uid]
        requests = self.claims[uid].containers[name]
        return self.cpus(only(whole, *(requests or ())))

    @staticmethod
    def cpus(held_claim: HeldClaim) -> frozenset[int]:
        return frozenset().union(*(parse_cpuset(device.data["cpus"]) for device in held_claim.devices))


NodeLife.TestCase.settings = settings(
    deadline=None,
    database=None,
    max_examples=10,
    stateful_step_count=15,
    phases=[Phase.explicit, Phase.generate],  # to shrink a failure takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestNodeLife = NodeLife.TestCase
