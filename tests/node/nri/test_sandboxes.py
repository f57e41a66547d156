"""When `dra_run_pod_sandbox` is called, and what becomes of a pod for which it fails, is late or was not called."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from dra_sdk import DriverInfo, HeldClaim, HeldDevice, Node, RetriableError
from dra_sdk.errors import ClaimError, StateError
from dra_sdk.loader import Driver
from dra_sdk.node.nri.driver_plugin import DriverPlugin
from dra_sdk.node.nri.plugin import ConnectOptions
from dra_sdk.nri import PodSandbox
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator.nri import NriRuntime, RefusedError
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.node.nri.nri_objects import LIMITS

NAME = "nets.example.com"
CLAIM = HeldClaim("shop", "net", "11-22", (HeldDevice("a", "n", "0"),), pods=("uid1",))
OTHER = HeldClaim("shop", "more", "33-44", (HeldDevice("a", "n", "1"),), pods=("uid9",))
VARIABLE = f"DRA_CLAIM_{NAME}_33-44_a=x"


class NetDriver:
    """Its hook waits until it may return, and fails as often as a test wants."""

    def __init__(self) -> None:
        self.failures = 0
        self.calls: list[tuple[str, ...]] = []
        self.may_return = Event()
        self.may_return.set()

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME)

    def dra_discover(self) -> list[object]:
        return []

    def dra_prepare(self) -> list[object]:
        return []

    def dra_run_pod_sandbox(self, pod: PodSandbox) -> None:
        self.calls.append(tuple(each.name for each in pod.claims))
        assert self.may_return.wait(LONG)
        if len(self.calls) <= self.failures:
            raise RetriableError(f"no interface is free for {pod}")


class Site:
    """A runtime, and the driver that is connected to it."""

    def __init__(self, root: Path, request_timeout: float) -> None:
        self.driver = NetDriver()
        self.held: list[HeldClaim] = [CLAIM]
        self.runtime = NriRuntime(root / "nri.sock", request_timeout=request_timeout)
        options = ConnectOptions(path=self.runtime.path, limits=LIMITS)
        self.strangers = {"uid2"}
        self.plugin = DriverPlugin(Driver.of(self.driver), Node("n", root), self.claims, options, admit=self.admit)

    def admit(self, claim: HeldClaim, pod: PodSandbox, _pods: Collection[str]) -> None:
        if pod.uid in self.strangers:
            raise ClaimError(f"{claim} is not reserved for {pod}")
        self.held[self.held.index(claim)] = replace(claim, pods=(*claim.pods, pod.uid))

    def claims(self) -> list[HeldClaim]:
        if not self.held:
            raise StateError("cannot read state directory")
        return self.held

    def run(self, number: int = 1) -> None:
        self.runtime.run_pod(pb.PodSandbox(id=f"pod{number}", name="web", uid=f"uid{number}", namespace="shop"))

    def create(self, name: str, *env: str, pod: str = "pod1") -> None:
        self.runtime.create_container(pb.Container(id=name, pod_sandbox_id=pod, name=name, env=env))

    def start(self) -> None:
        self.plugin.start()
        assert self.plugin.connection.wait_synchronized(LONG)


@contextmanager
def site(tmp_path: Path, *, request_timeout: float = LONG, started: bool = True) -> Iterator[Site]:
    found = Site(tmp_path, request_timeout)
    with found.runtime:
        if started:
            found.start()
        try:
            yield found
        finally:
            found.driver.may_return.set()
            assert found.plugin.stop(LONG)


def test_the_hook_runs_once_for_a_pod_with_claims(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        here.run()
        here.create("first")
        here.create("second")
        here.run(2)
        here.create("third", pod="pod2")
        assert here.driver.calls == [("net",)]


def test_a_hook_that_fails_refuses_containers_until_it_succeeds(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        here.driver.failures = 2
        here.run()
        with pytest.raises(RefusedError, match="no interface is free for pod shop/web"):
            here.create("a")  # it names no claim in its resources, and the pod has one
        here.create("a")
        here.create("b")
        assert here.driver.calls == [("net",)] * 3
        assert here.runtime.problems == []


def test_a_late_hook_refuses_containers_until_it_returns(tmp_path: Path) -> None:
    with site(tmp_path, request_timeout=4.0) as here:
        here.driver.may_return.clear()
        here.run()  # answered after 2 s
        with pytest.raises(RefusedError, match="dra_run_pod_sandbox has not returned yet for pod shop/web"):
            here.create("a")
        here.driver.may_return.set()
        here.create("a")
        assert here.driver.calls == [("net",)]
        assert here.runtime.problems == []


def test_a_hook_that_is_late_for_a_container_refuses_it(tmp_path: Path) -> None:
    with site(tmp_path, request_timeout=4.0) as here:
        here.driver.failures = 1
        here.run()
        here.driver.may_return.clear()
        with pytest.raises(RefusedError, match="the handler has not answered within 2 s"):
            here.create("a")
        here.driver.may_return.set()
        here.create("a")
        assert here.driver.calls == [("net",)] * 2


def test_a_pod_from_before_the_driver_is_set_up_before_its_container(tmp_path: Path) -> None:
    with site(tmp_path, started=False) as here:
        here.run()
        here.start()
        assert here.driver.calls == []
        here.create("a")
        assert here.driver.calls == [("net",)]


def test_a_pod_that_begins_to_use_another_claim_is_set_up_again(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        here.run()
        here.held.append(OTHER)
        here.create("a", VARIABLE)
        here.create("b", VARIABLE)
        assert here.driver.calls == [("net",), ("net", "more")]


def test_a_pod_that_joins_a_prepared_claim_is_set_up_with_its_sandbox(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        here.run(2)
        here.run(3)
        assert here.driver.calls == [("net",)]
        here.create("a", pod="pod2")
        with pytest.raises(RefusedError, match=r"claim shop/net .* is not reserved for pod shop/web"):
            here.create("b", VARIABLE.replace("33-44", "11-22"), pod="pod2")
        here.create("a", VARIABLE.replace("33-44", "11-22"), pod="pod3")
        assert here.driver.calls == [("net",)]


def test_a_new_sandbox_is_set_up_and_one_that_has_ended_is_forgotten(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        here.run()
        here.runtime.remove_pod("pod1")
        here.run()
        assert here.driver.calls == [("net",)] * 2


def test_sandboxes_are_remembered_when_the_runtime_restarts(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        here.run()
        here.runtime.stop()
        here.runtime.start()
        assert here.plugin.connection.wait_synchronized(LONG, 2)
        wait(lambda: here.plugin.connection.runtime is not None)
        here.create("a")
        assert here.driver.calls == [("net",)]


def test_with_unreadable_claims_only_containers_that_name_one_are_refused(tmp_path: Path) -> None:
    with site(tmp_path) as here:
        here.run()
        here.run(2)
        here.held.clear()
        here.create("a", pod="pod2")
        with pytest.raises(RefusedError, match="cannot read state directory"):
            here.create("b", VARIABLE)
