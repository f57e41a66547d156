"""A driver as an NRI plugin: which hook is called when, what fails closed, what is late, and what is applied again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event as ThreadEvent

import pytest

from dra_sdk import DeviceStatus, DriverInfo, HeldClaim, HeldDevice, Node, RetriableError
from dra_sdk.errors import ClaimError, StateError, UnreachableError
from dra_sdk.extensions import UndoStep, Verdict
from dra_sdk.loader import Driver
from dra_sdk.model.container import Report
from dra_sdk.model.undo import AT_ONCE, AtOnce, Undo
from dra_sdk.node.nri.driver_plugin import DriverPlugin
from dra_sdk.node.nri.plugin import ConnectOptions
from dra_sdk.nri import Container, ContainerAdjustment, ContainerResources, PodSandbox
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator.nri import NriRuntime, RefusedError
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.node.nri.nri_objects import LIMITS

NAME = "cards.example.com"
CLAIM = HeldClaim("shop", "cards", "11-22", (HeldDevice("a", "n", "0"), HeldDevice("b/x", "n", "1")), pods=("uid1",))
VARIABLE = f"DRA_CLAIM_{NAME}_11-22_"
SHARED = frozenset({6, 7})
Create = Callable[[Container, Sequence[HeldClaim]], ContainerAdjustment | None]
Answer = Mapping[str, ContainerResources | RetriableError]
Wanted = Callable[[Sequence[Container], Sequence[HeldClaim]], Answer]


def pinned(containers: Sequence[Container], _held: Sequence[HeldClaim]) -> dict[str, ContainerResources]:
    """Containers with claims have the CPUs that their devices are called after."""
    names = {each.id: [device.name for claim in each.claims for device in claim.devices] for each in containers}
    return {name: ContainerResources(cpus=frozenset(map(int, cpus)) or SHARED) for name, cpus in names.items()}


class NamedDriver:
    """The hooks that every driver has."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME)

    def dra_discover(self) -> list[object]:
        return []

    def dra_prepare(self) -> list[object]:
        return []


class CardDriver(NamedDriver):
    """Hooks that a test hands in, and a record of their arguments."""

    def __init__(self, create: Create = lambda _container, _held: None, wanted: Wanted = pinned) -> None:
        self.create, self.wanted = create, wanted
        self.pods: list[PodSandbox] = []
        self.created: list[Container] = []
        self.removed: list[Container] = []

    def dra_run_pod_sandbox(self, pod: PodSandbox) -> None:
        self.pods.append(pod)
        for each in pod.claims:
            pod.report(each, each.devices[0], DeviceStatus(data={"pod": pod.name}))

    def dra_create_container(
        self, container: Container, held: Sequence[HeldClaim], node: Node
    ) -> ContainerAdjustment | None:
        self.created.append(container)
        return self.create(container, held)

    def dra_synchronize(self, containers: Sequence[Container], held: Sequence[HeldClaim]) -> Answer:
        return self.wanted(containers, held)

    def dra_remove_container(self, container: Container) -> None:
        self.removed.append(container)


class Site:
    """A runtime, a driver that is connected to it, and the claims that it holds."""

    def __init__(self, tmp_path: Path, nri_version: str, request_timeout: float) -> None:
        self.held = [CLAIM]
        self.reserved = {"uid1", "uid2"}
        self.asked: list[tuple[str, list[str]]] = []
        self.is_down = ThreadEvent()
        self.root = tmp_path
        self.runtime = NriRuntime(tmp_path / "nri.sock", nri_version=nri_version, request_timeout=request_timeout)
        (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
        (tmp_path / "sys/fs/cgroup/cgroup.controllers").write_text("cpuset cpu\n")

    def claims(self) -> list[HeldClaim]:
        if not self.held:
            raise StateError("cannot read state directory")
        return self.held

    def admit(self, claim: HeldClaim, pod: PodSandbox, pods: Collection[str]) -> None:
        """The API server answers at once, or not, and knows which pods the claim is reserved for."""
        self.asked.append((pod.uid, sorted(pods)))
        if self.is_down.is_set():
            raise UnreachableError("no connection")
        if pod.uid not in self.reserved:
            raise ClaimError(f"{claim} is not reserved for {pod}")
        self.held = [replace(claim, pods=(*claim.pods, pod.uid))]

    def pod(self, number: int = 1, namespace: str = "shop") -> pb.PodSandbox:
        pod = pb.PodSandbox(id=f"pod{number}", name=f"web-{number}", uid=f"uid{number}", namespace=namespace)
        self.runtime.run_pod(pod)
        return pod

    def create(self, name: str, *env: str, pod: str = "pod1") -> pb.Container:
        return self.runtime.create_container(self.container(name, *env, pod=pod))

    def container(self, name: str, *env: str, pod: str = "pod1") -> pb.Container:
        container = pb.Container(id=name, pod_sandbox_id=pod, name=name, env=["PATH=/bin", *env])
        container.linux.cgroups_path = f"/{name}"
        return container

    def cpus(self, name: str) -> str:
        cpus: str = self.runtime.containers[name].linux.resources.cpu.cpus
        return cpus


@contextmanager
def site(
    tmp_path: Path,
    plugin: object,
    *,
    nri_version: str = "0.12.1",
    request_timeout: float = LONG,
    report: Report = lambda _claim, _device, _status: None,
    undo: Undo = AT_ONCE,
    before: Callable[[Site], object] = lambda _site: None,
) -> Iterator[tuple[Site, DriverPlugin]]:
    found = Site(tmp_path, nri_version, request_timeout)
    node, path = Node("n", tmp_path), found.runtime.path
    connected = DriverPlugin(
        Driver.of(plugin),
        node,
        found.claims,
        ConnectOptions(path=path, limits=LIMITS),
        report=report,
        undo=undo,
        admit=found.admit,
    )
    with found.runtime:
        before(found)
        connected.start()
        try:
            assert connected.connection.wait_synchronized(LONG)
            yield found, connected
        finally:
            assert connected.stop(LONG)


def test_a_hook_gets_the_claims_and_devices_that_a_container_uses(tmp_path: Path) -> None:
    driver = CardDriver()
    with site(tmp_path, driver) as (here, _):
        here.pod()
        here.create("both", f"{VARIABLE}a=cards", f"{VARIABLE}b=cards")
        here.create("second", f"{VARIABLE}b=cards")
        here.create("none", "DRA_CLAIM_other.example.com_11-22_a=cards")
        assert [[device.name for claim in each.claims for device in claim.devices] for each in driver.created] == [
            ["0", "1"],
            ["1"],
            [],
        ]
        assert all(each.pod.claims == (CLAIM,) for each in driver.created)
        assert driver.created[1].env == {"PATH": "/bin", f"{VARIABLE}b": "cards"}
        assert (driver.created[1].cgroup, str(driver.created[1])) == ("/second", "container second of pod shop/web-1")
        assert [here.cpus(each) for each in ("both", "second", "none")] == ["0-1", "1", "6-7"]
        here.runtime.stop_container("second")
        here.runtime.remove_container("second")
        assert driver.removed == [replace(driver.created[1], resources=ContainerResources(cpus=frozenset({1})))]


def test_what_the_stop_of_a_pod_cannot_restore_is_reported(tmp_path: Path) -> None:
    class Returning(CardDriver):
        def dra_stop_pod_sandbox(self, pod: PodSandbox, node: Node) -> None:
            for claim in pod.claims:
                with claim.undoing("name of card 0", harmless=True):
                    raise RetriableError("it was given away")

    seen: list[tuple[object, UndoStep]] = []
    undo = AtOnce(lambda claim, steps: seen.extend((claim, step) for step in steps))
    with site(tmp_path, Returning(), undo=undo) as (here, _):
        here.pod()
        here.runtime.stop_pod("pod1")
    assert seen == [(CLAIM, UndoStep("name of card 0", Verdict.HARMLESS, "it was given away"))]


def test_only_pods_with_claims_are_told_of(tmp_path: Path) -> None:
    driver = CardDriver()
    with site(tmp_path, driver) as (here, _):
        here.pod()
        here.pod(2)  # it joined the claim after its preparation
        here.pod(3)
        assert [each.uid for each in driver.pods] == ["uid1", "uid2"]
        here.create("late", f"{VARIABLE}a=cards", pod="pod2")
        assert driver.created[0].pod.claims == (replace(CLAIM, pods=("uid1", "uid2")),)
        assert here.asked == [("uid2", ["uid1", "uid2"]), ("uid3", ["uid1", "uid2", "uid3"])]


def test_a_pod_that_names_a_claim_which_is_not_reserved_for_it_is_refused(tmp_path: Path) -> None:
    with site(tmp_path, CardDriver()) as (here, _):
        here.pod()
        here.pod(3)
        with pytest.raises(RefusedError, match=r"claim shop/cards .* is not reserved for pod shop/web-3"):
            here.create("stranger", f"{VARIABLE}a=cards", pod="pod3")
        here.create("shared", pod="pod3")
        assert here.cpus("shared") == "6-7"
        here.is_down.set()
        with pytest.raises(RefusedError, match="no connection"):
            here.create("unknown", f"{VARIABLE}a=cards", pod="pod3")


def test_a_container_from_before_the_driver_keeps_its_claim_until_it_is_known_to_be_a_strangers(tmp_path: Path) -> None:
    def begin(here: Site) -> None:
        here.is_down.set()
        for number in (2, 3):
            here.pod(number)
            here.create(f"c{number}", f"{VARIABLE}a=cards", pod=f"pod{number}")

    with site(tmp_path, CardDriver(), before=begin) as (here, connected):
        wait(lambda: here.asked)
        assert [here.cpus(each) for each in ("c2", "c3")] == ["0", "0"]
        here.is_down.clear()
        wait(lambda: here.cpus("c3") == "6-7")
        assert connected.updates.wait_applied(LONG)
        assert here.cpus("c2") == "0"
        assert here.held[0].pods == ("uid1", "uid2")


@pytest.mark.parametrize(
    ("variable", "problem"),
    [
        (f"{VARIABLE}c", "uses request 'c' of claim shop/cards"),
        (f"DRA_CLAIM_{NAME}_99_a", "uses claim 99, which driver cards.example.com does not hold"),
        (f"DRA_CLAIM_{NAME}_a", "does not end with a claim's UID and request"),
        (f"DRA_CLAIM_{NAME}_", "does not end with a claim's UID and request"),
    ],
)
def test_a_variable_that_names_nothing_prepared_fails_the_container(
    tmp_path: Path, variable: str, problem: str
) -> None:
    with site(tmp_path, CardDriver()) as (here, _):
        here.pod()
        with pytest.raises(RefusedError, match=problem):
            here.create("c", f"{variable}=x")
        here.create("d")  # the plugin is still there
        assert here.cpus("d") == "6-7"


@pytest.mark.parametrize("claim", [replace(CLAIM, complete=False), replace(CLAIM, rebooted=True)])
def test_a_claim_that_is_not_prepared_now_fails_the_container(tmp_path: Path, claim: HeldClaim) -> None:
    with site(tmp_path, CardDriver()) as (here, _):
        here.held = [claim]
        here.pod()
        with pytest.raises(RefusedError, match="which is not prepared"):
            here.create("c", f"{VARIABLE}a=x")


def test_state_that_cannot_be_read_fails_containers_with_claims_only(tmp_path: Path) -> None:
    with site(tmp_path, CardDriver()) as (here, connected):
        here.pod()
        here.held = []
        with pytest.raises(RefusedError, match="cannot read state directory"):
            here.create("c", f"{VARIABLE}a=x")
        here.create("d")
        assert here.cpus("d") == ""
        here.held = [CLAIM]
        assert connected.updates.wait_applied(LONG)
        assert here.cpus("d") == "6-7"


def test_an_answer_against_the_contract_fails_only_containers_with_claims(tmp_path: Path) -> None:
    driver = CardDriver(lambda _container, _held: ContainerAdjustment(ContainerResources(cpus=frozenset())))
    with site(tmp_path, driver) as (here, connected):
        here.pod()
        with pytest.raises(RefusedError, match="cpus is the empty set"):
            here.create("c", f"{VARIABLE}a=x")
        here.create("d")
        assert connected.updates.wait_applied(LONG)
        assert here.cpus("d") == "6-7"  # by dra_synchronize, soon afterwards


def test_a_driver_may_refuse_a_container_without_claims(tmp_path: Path) -> None:
    def refuse(container: Container, _held: object) -> None:
        if container.name == "c":
            raise RetriableError("no CPU is left")

    with site(tmp_path, CardDriver(refuse)) as (here, _):
        here.pod()
        with pytest.raises(RefusedError, match="no CPU is left"):
            here.create("c")
        here.create("d")
        assert here.cpus("d") == "6-7"


def test_an_error_of_dra_synchronize_refuses_a_container_or_leaves_it(tmp_path: Path) -> None:
    is_full = ThreadEvent()

    def wanted(containers: Sequence[Container], held: Sequence[HeldClaim]) -> Answer:
        return (
            dict.fromkeys(pinned(containers, held), RetriableError("no CPU is left"))
            if is_full.is_set()
            else (pinned(containers, held))
        )

    with site(tmp_path, CardDriver(wanted=wanted)) as (here, connected):
        here.pod()
        here.create("c")
        is_full.set()
        with pytest.raises(RefusedError, match="CreateContainer for container d of pod shop/web-1: no CPU is left"):
            here.create("d")
        asked = pb.LinuxResources()
        asked.cpu.cpus = "0-7"
        here.runtime.update_container("c", asked)
        connected.updates.claims_changed()
        assert connected.updates.wait_applied(LONG)
        assert here.cpus("c") == "6-7"
        is_full.clear()
        here.create("d")
        assert here.cpus("d") == "6-7"


def test_a_late_hook_fails_a_container_with_claims_and_delays_no_other(tmp_path: Path) -> None:
    release = ThreadEvent()

    def create(container: Container, _held: Sequence[HeldClaim]) -> None:
        if container.name.startswith("slow"):
            assert release.wait(LONG)

    with site(tmp_path, CardDriver(create), request_timeout=6.0) as (here, connected):
        here.pod()
        with pytest.raises(RefusedError, match="the handler has not answered within 3 s"):
            here.create("slow", f"{VARIABLE}a=x")
        here.create("slow-without-claims")  # it gets what the driver wants with the next event, or before
        here.create("quick", f"{VARIABLE}a=x")
        assert (here.cpus("quick"), here.cpus("slow-without-claims")) == ("0", "6-7")
        release.set()
        assert connected.updates.wait_applied(LONG)
        assert here.runtime.problems == []


class PodDriver(NamedDriver):
    """A driver that is called about pods alone."""

    def dra_run_pod_sandbox(self) -> None:
        """Nothing."""


@pytest.mark.parametrize(("made", "asked"), [(CardDriver, True), (PodDriver, False)])
def test_a_container_waits_only_for_a_driver_that_changes_containers(
    tmp_path: Path, made: Callable[[], object], asked: bool
) -> None:
    with site(tmp_path, made()) as (here, _):
        here.pod()
        here.create("c", f"{VARIABLE}a=x")
        here.runtime.start_container("c")
        called = {each.method for each in here.runtime.calls}
    assert "CreateContainer" in called
    assert ("PostStartContainer" in called) == asked


def test_what_a_hook_reports_is_written_after_the_pod_has_started(tmp_path: Path) -> None:
    started = ThreadEvent()
    reported: list[str] = []

    def report(_claim: HeldClaim, _device: HeldDevice, status: DeviceStatus) -> None:
        assert started.wait(LONG)
        reported.append(str(status.data["pod"]))

    with site(tmp_path, CardDriver(), report=report) as (here, connected):
        here.pod()
        assert reported == []
        started.set()
        assert connected.reports.wait(LONG)
        assert reported == ["web-1"]


@pytest.mark.parametrize("nri_version", ["0.3.0", "0.8.0", "0.12.0"])
def test_an_older_runtime_is_not_asked_but_cgroups_are_written(tmp_path: Path, nri_version: str) -> None:
    with site(tmp_path, CardDriver(), nri_version=nri_version) as (here, connected):
        here.pod()
        here.create("c", f"{VARIABLE}a=x")
        here.runtime.start_container("c")
        file = tmp_path / "sys/fs/cgroup/c/cpuset.cpus"
        file.parent.mkdir(parents=True)
        file.write_text("0")
        here.held = [replace(CLAIM, devices=(HeldDevice("a", "n", "5"),))]
        connected.updates.claims_changed()
        assert connected.updates.wait_applied(LONG)
        assert file.read_text() == "5"
        assert here.cpus("c") == "0"  # as far as the runtime knows


def test_a_container_without_a_cgroup_gets_its_cpus_when_it_has_started(tmp_path: Path) -> None:
    with site(tmp_path, CardDriver(), nri_version="0.12.0") as (here, connected):
        here.pod()
        here.create("c", f"{VARIABLE}a=x")
        here.held = [replace(CLAIM, devices=(HeldDevice("a", "n", "5"),))]
        connected.updates.claims_changed()
        assert connected.updates.wait_applied(LONG)
        file = tmp_path / "sys/fs/cgroup/c/cpuset.cpus"
        file.parent.mkdir(parents=True)
        file.write_text("0")
        here.runtime.start_container("c")
        wait(lambda: file.read_text() == "5")


def test_a_cgroup_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    with site(tmp_path, CardDriver(), nri_version="0.12.0") as (here, connected):
        here.pod()
        here.create("c", f"{VARIABLE}a=x")
        file = tmp_path / "sys/fs/cgroup/c/cpuset.cpus"
        file.parent.mkdir(parents=True)
        here.held = [replace(CLAIM, devices=(HeldDevice("a", "n", "5"),))]
        connected.updates.claims_changed()
        wait(lambda: connected.updates.failed)
        file.write_text("0")
        assert connected.updates.wait_applied(LONG)
        assert file.read_text() == "5"


def test_a_failing_dra_synchronize_is_repeated_and_ends_no_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failures = iter([True, True, True])

    def wanted(containers: Sequence[Container], held: Sequence[HeldClaim]) -> Mapping[str, ContainerResources]:
        if next(failures, False):
            raise OSError("the driver cannot read its file")
        return pinned(containers, held)

    driver = CardDriver(wanted=wanted)
    with site(tmp_path, driver) as (here, connected):
        here.pod()
        here.create("c")
        wait(lambda: here.cpus("c") == "6-7")
        assert connected.connection.connections == 1
    assert "the driver cannot read its file" in caplog.text


def test_a_container_that_is_not_known_is_an_error_of_the_driver(tmp_path: Path) -> None:
    with site(tmp_path, CardDriver(wanted=lambda _containers, _held: {"x": ContainerResources()})) as (here, _):
        here.pod()
        with pytest.raises(RefusedError, match="returned container 'x', which it was not given"):
            here.create("c", f"{VARIABLE}a=x")


def test_dra_create_container_comes_before_dra_synchronize(tmp_path: Path) -> None:
    answer = ContainerAdjustment(
        ContainerResources(mems=frozenset({1}), cpu_quota=-1, hugepage_limits={"2MB": 0}), {"A": "b"}, {"k": "v"}
    )
    with site(tmp_path, CardDriver(lambda _container, _held: answer)) as (here, _):
        here.pod()
        made = here.create("c", f"{VARIABLE}a=x")
        assert (made.linux.resources.cpu.cpus, made.linux.resources.cpu.mems) == ("0", "1")
        assert made.linux.resources.cpu.quota.value == -1
        assert [(each.page_size, each.limit) for each in made.linux.resources.hugepage_limits] == [("2MB", 0)]
        assert "A=b" in made.env
        assert dict(made.annotations) == {"k": "v"}


def test_a_resize_keeps_what_the_driver_wants_also_if_its_hook_fails(tmp_path: Path) -> None:
    fails = ThreadEvent()

    def wanted(containers: Sequence[Container], held: Sequence[HeldClaim]) -> Mapping[str, ContainerResources]:
        if fails.is_set():
            raise OSError("not now")
        return pinned(containers, held)

    with site(tmp_path, CardDriver(wanted=wanted)) as (here, connected):
        here.pod()
        here.create("c", f"{VARIABLE}a=x")
        for _ in range(2):
            asked = pb.LinuxResources()
            asked.cpu.cpus, asked.cpu.quota.value = "0-7", 9000
            here.runtime.update_container("c", asked)
            assert here.cpus("c") == "0"
            assert here.runtime.containers["c"].linux.resources.cpu.quota.value == 9000
            fails.set()
        fails.clear()
        assert connected.updates.wait_applied(LONG)


def test_containers_of_before_the_connection_get_what_the_driver_wants(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    driver = CardDriver()
    with site(tmp_path, driver) as (here, connected):
        assert connected.stop(LONG)
        wait(lambda: here.runtime.plugins == [])
        here.pod()
        here.create("c", f"{VARIABLE}a=x")
        here.create("d")
        here.create("unknown", f"{VARIABLE}z=x")
        assert here.cpus("c") == ""
        options = ConnectOptions(path=here.runtime.path, limits=LIMITS)
        again = DriverPlugin(Driver.of(driver), Node("n", tmp_path), here.claims, options)
        again.start()
        assert again.connection.wait_synchronized(LONG)
        assert here.runtime.wait_plugins(1, LONG)
        assert [here.cpus(each) for each in ("c", "d")] == ["0", "6-7"]
        assert again.stop(LONG)
    assert "uses request 'z' of claim shop/cards (11-22)" in caplog.text
    assert "it was created without the driver" in caplog.text
