"""The kubelets of the benchmark: one emulated kubelet per driver, each with directories of its own."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from dra_sdk.model.claim import ClaimRef
from dra_sdk.tools.simulator.kubelet.emulator import KubeletEmulator
from dra_sdk.tools.simulator.kubelet.records import GET_INFO, NOTIFY, DriverCall
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.objects import ObjectStore
from tests.bench.contestants import NODE, Contestant, Running
from tests.cluster.harness.errors import HarnessError

_TIMEOUT = 60.0
_LOOK = 0.5
_PROBE = 0.001
_TIMING = KubeletTiming(wipe_delay=3600.0)
"""The emulator's own pace; slices are removed by the benchmark itself."""


class Node:
    """The kubelet of one contestant."""

    def __init__(self, kubelet: KubeletEmulator, driver: str) -> None:
        self._kubelet = kubelet
        self._driver = driver

    def wait_registered(self, running: Running) -> float:
        """Wait until the driver is registered; when it was (`time.monotonic()`), had the kubelet not paused.

        That is when the driver began to listen plus how long it took to answer the registration's two calls. A kubelet
        looks for sockets only now and then and tries again after a pause, which says nothing about the driver.
        """
        deadline = time.monotonic() + _TIMEOUT
        listening = _wait_listening(running, deadline)
        records = self._kubelet.records
        while not records.wait(lambda calls: bool(_answered(calls, NOTIFY, running)), _LOOK):
            _check(running, deadline)
        self._kubelet.wait_for_driver(self._driver)
        calls = records.calls(driver=self._driver)
        return listening + sum(_answered(calls, kind, running)[-1].seconds for kind in (GET_INFO, NOTIFY))

    def prepare(self, claim: ClaimRef) -> float:
        """NodePrepareResources; the seconds it took. HarnessError unless one device with a CDI id comes back."""
        began = time.perf_counter()
        devices = self._kubelet.prepare(self._driver, [claim])[claim.uid]
        seconds = time.perf_counter() - began
        if [bool(device.cdi_ids) for device in devices] != [True]:
            raise HarnessError(f"{self._driver}: claim {claim} was answered with {devices}")
        return seconds

    def unprepare(self, claim: ClaimRef) -> float:
        """NodeUnprepareResources; the seconds it took."""
        began = time.perf_counter()
        self._kubelet.unprepare(self._driver, [claim])
        return time.perf_counter() - began


@contextmanager
def nodes(contestants: Sequence[Contestant]) -> Iterator[list[Node]]:
    """A kubelet for each contestant."""
    with ExitStack() as stack:
        found = []
        for contestant in contestants:
            # Drivers and claims use a real API server; this empty one is where the kubelet would wipe slices.
            unused = LocalClient(ObjectStore())
            kubelet = KubeletEmulator(NODE, unused, contestant.dirs.kubelet, timing=_TIMING, health="off")
            found.append(Node(stack.enter_context(kubelet), contestant.driver))
        yield found


def _wait_listening(running: Running, deadline: float) -> float:
    contestant = running.contestant
    path = contestant.dirs.registry / f"{contestant.driver}-reg.sock"
    while True:
        with socket.socket(socket.AF_UNIX) as attempt:
            if attempt.connect_ex(str(path)) == 0:
                return time.monotonic()
        _check(running, deadline)
        time.sleep(_PROBE)


def _check(running: Running, deadline: float) -> None:
    running.check()
    if time.monotonic() > deadline:
        raise HarnessError(f"the {running.contestant.label} driver did not register in {_TIMEOUT:.0f} s")


def _answered(calls: Sequence[DriverCall], kind: str, running: Running) -> list[DriverCall]:
    """The registration's calls of one kind that went well since the driver was started."""
    driver = running.contestant.driver
    since = [call for call in calls if call.kind == kind and call.driver == driver and call.started > running.began]
    return [call for call in since if not call.error and call.registered is not False]
