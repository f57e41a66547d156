"""Which CPUs containers may use: by example, and rules that hold after any sequence of events on a node."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from dra_driver_cpu import CpuDriver, CpuSettings
from dra_driver_cpu.pinning import EmptySharedPoolError, NoCpuOnlineError, NotHeldError, Pinning, check_shared_pool
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dra_sdk import Container, ContainerResources, HeldClaim, HeldDevice, PodSandbox
from dra_sdk.hardware import CpuSet, Host, format_cpuset, parse_cpuset
from dra_sdk.testing import DriverHarness, FakeNode, NotAllocatedError, PreparedClaim, claim, request
from dra_sdk.testing.sysfs import FakeMachine, regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]

MACHINE = regular_machine(sockets=2, cores=4)
"""CPUs 0-3,8-11 in NUMA node 0, and 4-7,12-15 in node 1."""
NOBODY = PodSandbox(id="p", namespace="default", name="pod", uid="pod-uid")


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return MACHINE.write(tmp_path / "host")


def held(uid: str, cpus: str, **data: str) -> HeldClaim:
    """A claim with one device for each of the lists in `cpus`, separated by blanks; their requests are r0, r1, …"""
    devices = [HeldDevice(f"r{n}", "node", "d", data={"cpus": each, **data}) for n, each in enumerate(cpus.split())]
    return HeldClaim("default", f"claim-{uid}", uid, devices)


def container(*claims: HeldClaim, name: str = "main", **env: str) -> Container:
    return Container(id=name, name=name, pod=NOBODY, claims=claims, env=env)


def only(whole: HeldClaim, *requests: str) -> HeldClaim:
    """The claim as a container sees it that names these requests."""
    return replace(whole, devices=[each for each in whole.devices if each.base_request in requests])


def pinning(host: Host, *claims: HeldClaim, reserved: str = "") -> Pinning:
    return Pinning.read(host, parse_cpuset(reserved), claims)


def given_to(state: Pinning, one: Container) -> str:
    return format_cpuset(state.adjustment(one).resources.cpus or ())


def test_a_container_has_the_cpus_of_its_claim_and_everyone_else_what_is_left(host: Host) -> None:
    mine, other = held("a", "1,9"), held("b", "4-5,12-13")
    state = pinning(host, mine, other, reserved="0")
    assert given_to(state, container(mine)) == "1,9"
    assert given_to(state, container()) == "2-3,6-8,10-11,14-15"


def test_a_container_with_several_claims_has_the_cpus_of_all(host: Host) -> None:
    claims = [held("a", "1,9"), held("b", "4-5")]
    assert given_to(pinning(host, *claims), container(*claims)) == "1,4-5,9"


def test_containers_split_a_claim_by_request_and_what_no_container_uses_stays_reserved(host: Host) -> None:
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
    assert state.adjustment(container(far)).resources.mems == {1}
    assert state.adjustment(container(both)).resources.mems == {0, 1}
    assert state.adjustment(container()).resources.mems is None


def test_the_memory_of_a_claim_that_says_none_stays_as_it_is(host: Host) -> None:
    near, anywhere = held("a", "4-5", memory="local"), held("b", "1", memory="none")
    state = pinning(host, near, anywhere)
    assert state.adjustment(container(anywhere)).resources.mems is None
    assert state.adjustment(container(near, anywhere)).resources.mems is None


def test_a_numa_node_without_memory_is_never_named(host: Host) -> None:
    """The kernel refuses it in `cpuset.mems`."""
    (host.sys / "devices/system/node/has_memory").write_text("0\n")
    both, far = held("a", "1 6"), held("b", "4-5")
    state = pinning(host, both, far)
    assert state.adjustment(container(both)).resources.mems == {0}
    assert state.adjustment(container(far)).resources.mems is None


def test_a_kernel_without_numa_support_has_node_0(tmp_path: Path) -> None:
    host = replace(regular_machine(), numa=False).write(tmp_path)
    one = held("a", "1,5")
    assert pinning(host, one).adjustment(container(one)).resources.mems == {0}


def test_the_driver_of_memory_sets_the_nodes_of_a_container_that_uses_both(host: Host) -> None:
    """A runtime refuses two plugins that set the nodes of one container."""
    one = held("a", "4-5")
    assert pinning(host, one).adjustment(container(one, DRA_MEMS_b="0")).resources == ContainerResources(
        cpus=parse_cpuset("4-5"), cpu_quota=-1
    )


def test_the_quota_is_removed_unless_a_claim_keeps_it(host: Host) -> None:
    free, limited = held("a", "1", quota="remove"), held("b", "2", quota="keep")
    state = pinning(host, free, limited)
    quotas = [
        state.adjustment(container(*claims)).resources.cpu_quota for claims in ([free], [limited], [], [free, limited])
    ]
    assert quotas == [-1, None, None, None]


def test_cpus_that_are_offline_are_left_out(tmp_path: Path) -> None:
    host = MACHINE.offlined(9, 15).write(tmp_path)
    one, gone = held("a", "1,9"), held("b", "15")
    state = pinning(host, one, gone)
    assert given_to(state, container(one)) == "1"
    assert given_to(state, container()) == "0,2-8,10-14"
    with pytest.raises(NoCpuOnlineError, match=r"container main of pod default/pod: of the CPUs .* none is online"):
        state.adjustment(container(gone))
    assert list(state.synchronize([container(gone, name="gone"), container(one, name="one")])) == ["one"]


def test_where_the_last_free_cpu_went_offline_others_run_on_reserved_cpus(tmp_path: Path) -> None:
    host = regular_machine(cores=4, threads=1).offlined(3).write(tmp_path)
    state = pinning(host, held("a", "1-2"), reserved="0")
    assert given_to(state, container()) == "0"


def test_where_nothing_is_left_no_empty_list_is_sent(tmp_path: Path) -> None:
    state = pinning(regular_machine(cores=2, threads=1).write(tmp_path), held("a", "0-1"))
    assert state.synchronize([container()]) == {}
    with pytest.raises(NoCpuOnlineError):
        state.adjustment(container())


def test_a_container_that_names_a_claim_that_is_not_held_is_refused(host: Host) -> None:
    mine, gone = held("a", "1"), held("gone", "2")
    state = pinning(host, mine)
    with pytest.raises(NotHeldError, match=r"uses claim default/claim-gone \(gone\), which holds no CPUs on this node"):
        state.adjustment(container(mine, gone))
    with pytest.raises(NotHeldError, match="variable DRA_CPUSET_gone_r0 names claim gone, which it does not use"):
        state.adjustment(container(mine, DRA_CPUSET_gone_r0="2"))
    with pytest.raises(NotHeldError, match="names claim a, which it does not use"):
        state.adjustment(container(DRA_CPUSET_a="1"))


def test_a_running_container_whose_claim_ended_has_the_shared_pool(host: Host) -> None:
    """Its CPUs may be those of another claim by now."""
    ended = held("a", "1")
    assert pinning(host).synchronize([container(ended)]) == {"main": ContainerResources(cpus=parse_cpuset("0-15"))}


def test_a_claim_that_is_still_being_prepared_gets_no_container(host: Host) -> None:
    begun = HeldClaim("default", "c", "a", [HeldDevice("r0", "node", "d")], complete=False)
    with pytest.raises(NotHeldError):
        pinning(host, begun).adjustment(container(begun))


def test_a_claim_that_leaves_nothing_for_others_is_refused_with_the_numbers() -> None:
    online = parse_cpuset("0-3")
    check_shared_pool(online, parse_cpuset("0"), [held("a", "1")], parse_cpuset("2"))
    with pytest.raises(EmptySharedPoolError) as error:
        check_shared_pool(online, parse_cpuset("0"), [held("a", "1")], parse_cpuset("2-3"))
    assert str(error.value) == (
        "2 CPUs for this claim would leave none for containers without claims: 4 CPUs are online (0-3), "
        "1 of them are reserved, 1 are held by other claims; ask for fewer CPUs, or wait until another claim has ended"
    )


def test_the_driver_refuses_the_claim_for_the_last_cpu(dra_node: FakeNode, dra_driver: Any) -> None:
    dra_node.machine(regular_machine(cores=2, threads=1))
    driver = dra_driver(CpuDriver)
    first = driver.prepare(claim(request("cpu")))
    last = driver.allocate(claim(request("cpu")))
    with pytest.raises(EmptySharedPoolError, match="2 CPUs are online"):
        driver.prepare(last)
    driver.unprepare(first)
    driver.prepare(last)


# -- any sequence of events


@dataclass
class Running:
    """A container that runs, as its cgroup is."""

    container: Container
    uses: tuple[str, tuple[str, ...]] | None
    cpus: CpuSet


class NodeLife(RuleBasedStateMachine):
    """A node with the driver, a kubelet that prepares claims, and a runtime that applies what the driver answers."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.node = FakeNode(Path(self.directory.name))
        self.claims: dict[str, PreparedClaim] = {}
        self.running: dict[str, Running] = {}
        self.created = 0

    def teardown(self) -> None:
        self.directory.cleanup()

    @initialize(
        machine=st.sampled_from([regular_machine(cores=2, threads=1), regular_machine(sockets=2, cores=2)]),
        reserved=st.sampled_from(["", "0", "1"]),
    )
    def start(self, machine: FakeMachine, reserved: str) -> None:
        self.machine = machine
        self.reserved = parse_cpuset(reserved)
        self.node.machine(machine)
        self.driver = DriverHarness(CpuDriver, self.node, settings=CpuSettings(reserved_cpus=self.reserved))

    @rule(numbers=st.lists(st.integers(1, 3), min_size=1, max_size=2))
    def prepare(self, numbers: list[int]) -> None:
        requests = [request(f"r{n}", capacity={"dra.cpu/cpu": str(each)}) for n, each in enumerate(numbers)]
        try:
            prepared = self.driver.prepare(claim(*requests))
        except (NotAllocatedError, EmptySharedPoolError):
            return
        self.claims[prepared.ref.uid] = prepared
        self.synchronize()

    @precondition(lambda self: self.claims)
    @rule(data=st.data())
    def end_pod(self, data: st.DataObject) -> None:
        """The kubelet unprepares a claim when its containers have ended."""
        uid = data.draw(st.sampled_from(sorted(self.claims)))
        for name in [each.container.id for each in self.running.values() if each.uses and each.uses[0] == uid]:
            del self.running[name]
        self.driver.unprepare(self.claims.pop(uid))
        self.synchronize()

    @rule(data=st.data())
    def create(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from([None, *sorted(self.claims)]))
        uses = None
        if uid is not None:
            names = [each.base_request for each in self.claims[uid].devices]
            uses = uid, tuple(data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))
        self.created += 1
        self.begin(f"c{self.created}", uses)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def restart_container(self, data: st.DataObject) -> None:
        """The kubelet creates it again, without another prepare."""
        name = data.draw(st.sampled_from(sorted(self.running)))
        before = self.running.pop(name)
        self.begin(f"{name}+", before.uses)
        if before.uses is not None:
            assert self.running[f"{name}+"].cpus == before.cpus

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        del self.running[data.draw(st.sampled_from(sorted(self.running)))]
        self.synchronize()

    @rule(while_away=st.integers(0, 2))
    def restart_driver(self, while_away: int) -> None:
        """Containers that start while the driver is away run anywhere, until it is back."""
        before = {name: each.cpus for name, each in self.running.items()}
        for _ in range(while_away):
            self.created += 1
            one = self.container(f"c{self.created}", None)
            self.running[one.id] = Running(one, None, parse_cpuset("0-7"))
        self.driver.restart()
        self.synchronize()
        assert {name: self.running[name].cpus for name in before} == before

    @invariant()
    def nobody_runs_on_the_cpus_of_another(self) -> None:
        if not hasattr(self, "driver"):
            return
        held = {each.uid: self.cpus(each) for each in self.driver.held}
        assert set(held) == set(self.claims)
        assert sum(map(len, held.values())) == len(frozenset().union(*held.values()))
        for each in self.running.values():
            allowed = frozenset().union(*held.values())
            if each.uses is None:
                assert not each.cpus & allowed
                assert not each.cpus & self.reserved
            else:
                assert each.cpus <= held[each.uses[0]]
            assert each.cpus

    @invariant()
    def others_have_all_the_cpus_that_are_left(self) -> None:
        if not hasattr(self, "driver"):
            return
        taken = frozenset().union(*map(self.cpus, self.driver.held))
        left = frozenset(each.id for each in self.machine.cpus) - self.reserved - taken
        assert left
        assert all(each.cpus == left for each in self.running.values() if each.uses is None)

    def begin(self, name: str, uses: tuple[str, tuple[str, ...]] | None) -> None:
        """The runtime changes the other containers before the new one starts."""
        one = self.container(name, uses)
        found = self.driver.plugin.dra_create_container(one, self.driver.held, self.node.node).resources.cpus
        self.synchronize()
        self.running[name] = Running(one, uses, found)

    def container(self, name: str, uses: tuple[str, tuple[str, ...]] | None) -> Container:
        if uses is None:
            return container(name=name)
        (whole,) = [each for each in self.driver.held if each.uid == uses[0]]
        return container(only(whole, *uses[1]), name=name)

    def synchronize(self) -> None:
        known = [each.container for each in self.running.values()]
        answer = self.driver.plugin.dra_synchronize(known, self.driver.held, self.node.node)
        for name, resources in answer.items():
            self.running[name].cpus = resources.cpus

    def cpus(self, one: HeldClaim) -> CpuSet:
        lists: Sequence[str] = [each.data["cpus"] for each in one.devices]
        return frozenset().union(*map(parse_cpuset, lists))


NodeLife.TestCase.settings = settings(
    deadline=None,
    database=None,
    max_examples=25,
    stateful_step_count=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestNodeLife = NodeLife.TestCase
