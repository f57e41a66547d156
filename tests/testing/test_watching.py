"""`dra_watch` and `dra_device_health` under the harness: what is waited for, what is raised, and that threads end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Event

import pytest

from dra_sdk import DeviceHealth, HealthStatus, Node
from dra_sdk.errors import HookError
from dra_sdk.hardware import polling
from dra_sdk.testing import watching
from dra_sdk.testing.waiting import wait
from tests.testing.lamps import SwitchedLamps

pytest_plugins = ["dra_sdk.testing.plugin"]
LAMPS = "sys/class/lamps"


class Watched(SwitchedLamps):
    """Notices lamps that come and go."""

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        polling.watch(lambda: frozenset((node.root / LAMPS).glob("*/watt")), changed, stop, 0.01)


class Silent(SwitchedLamps):
    """Mistake: never calls `changed()`."""

    def dra_watch(self, stop: Event) -> None:
        stop.wait()


class Chatty(SwitchedLamps):
    """Calls `changed()` though nothing has changed."""

    def dra_watch(self, changed: Callable[[], None], stop: Event) -> None:
        while not stop.wait(0.01):
            changed()


class Short(SwitchedLamps):
    """Mistake: both hooks return at once."""

    def dra_watch(self) -> None:
        return

    def dra_device_health(self) -> list[list[DeviceHealth]]:
        return []


class Broken(SwitchedLamps):
    """Both hooks raise at first, and work when they are started again."""

    def __init__(self) -> None:
        super().__init__()
        self.raised = False

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        self.fail()
        Watched().dra_watch(node, changed, stop)

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        self.fail()
        yield from Healthy().dra_device_health(node, stop)

    def fail(self) -> None:
        if not self.raised:
            self.raised = True
            raise OSError("no bus")


class Deaf(SwitchedLamps):
    """Mistake: ignores `stop` until the test ends it."""

    def __init__(self) -> None:
        super().__init__()
        self.started, self.released = Event(), Event()

    def dra_watch(self) -> None:
        self.started.set()
        self.released.wait()


class Healthy(SwitchedLamps):
    """A lamp is as healthy as its file says."""

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        while not stop.is_set():
            paths = (node.root / LAMPS).glob("*/on")
            texts = {path.parent.name: path.read_text() for path in paths}
            yield [
                DeviceHealth(name, HealthStatus.UNHEALTHY if text == "burnt" else HealthStatus.HEALTHY, text)
                for name, text in texts.items()
            ]
            stop.wait(0.01)


@pytest.fixture(autouse=True)
def _no_thread_is_left(lamps):
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before


# -- dra_watch


def test_a_change_is_waited_for_and_the_devices_are_new(lamps, dra_driver):
    driver = dra_driver(Watched)
    with driver.watching() as watch:
        lamps.remove(f"/{LAMPS}/lamp-0")
        (pool,) = watch.wait_changed()
        assert [device.name for device in pool.devices] == list(driver.devices) == ["lamp-1"]
        lamps.file(f"/{LAMPS}/lamp-2/watt", "7\n")
        watch.wait_changed()
        assert list(driver.devices) == ["lamp-1", "lamp-2"]


def test_no_change_is_an_error_that_names_driver_and_limit(lamps, dra_driver):
    with dra_driver(Silent).watching() as watch, pytest.raises(AssertionError) as caught:
        watch.wait_changed(0.05)
    text = "driver lamps.example.com reported no change within 0.05 s: dra_watch has never called changed()"
    assert str(caught.value) == text


def test_a_report_after_which_the_devices_are_the_same_is_no_change(lamps, dra_driver):
    with dra_driver(Chatty).watching() as watch:
        wait(lambda: watch.reports > 2)
        with pytest.raises(AssertionError, match=r"has called changed\(\) \d+ times, and the devices are as before"):
            watch.wait_changed(0.05)
        lamps.remove(f"/{LAMPS}/lamp-0")
        watch.wait_changed()


def test_what_the_hook_raises_is_raised_by_wait_and_it_starts_again(lamps, dra_driver):
    with dra_driver(Broken).watching() as watch:
        lamps.remove(f"/{LAMPS}/lamp-0")
        with pytest.raises(HookError, match=r"dra_watch of driver lamps.example.com failed: OSError: no bus"):
            watch.wait_changed()
        watch.wait_changed()


def test_what_the_hook_raises_at_first_is_raised_by_the_first_wait(lamps, dra_driver):
    class Late(Broken):
        """Discovers nothing before its other hook has failed."""

        def dra_discover(self, node):
            wait(lambda: self.raised)
            return super().dra_discover(node)

    with dra_driver(Late).watching() as watch, pytest.raises(HookError, match="OSError: no bus"):
        watch.wait_changed()


def test_what_the_hook_raises_is_raised_at_the_end_if_nobody_waits(dra_driver):
    driver = dra_driver(Broken)
    with pytest.raises(HookError, match="OSError: no bus"), driver.watching():
        wait(lambda: driver.plugin.raised)


def test_a_hook_that_returns_is_an_error(dra_driver):
    with pytest.raises(HookError, match="ended before stop was set"), dra_driver(Short).watching() as watch:
        watch.wait_changed()


def test_a_hook_that_ignores_stop_is_an_error(dra_driver, monkeypatch):
    driver = dra_driver(Deaf)
    running = driver.watching()
    monkeypatch.setattr(watching, "LIMIT", 0.5)
    text = "dra_watch of driver lamps.example.com still runs 0.5 s after stop was set"
    with pytest.raises(AssertionError, match=text), running:
        assert driver.plugin.started.wait(30)  # a hook that has not begun when the block ends is not called at all
    driver.plugin.released.set()
    wait(lambda: not any(thread.name == "watch" for thread in threading.enumerate()))


@pytest.mark.parametrize(("start", "hook"), [("watching", "dra_watch"), ("watching_health", "dra_device_health")])
def test_a_driver_without_the_hook_is_an_error(driver, start, hook):
    with pytest.raises(AssertionError, match=f"driver lamps.example.com has no hook {hook}"):
        getattr(driver, start)()


# -- dra_device_health


def test_the_first_report_has_the_health_of_every_device(lamps, dra_driver):
    lamps.file(f"/{LAMPS}/lamp-1/on", "burnt")
    health = dra_driver(Healthy).health()
    assert {name: device.status.name for name, device in health.items()} == {"lamp-0": "HEALTHY", "lamp-1": "UNHEALTHY"}
    assert health["lamp-1"].pool == "node-1"


def test_a_status_is_waited_for(lamps, dra_driver):
    with dra_driver(Healthy).watching_health() as health:
        health.wait("lamp-0", HealthStatus.HEALTHY)
        lamps.file(f"/{LAMPS}/lamp-0/on", "burnt")
        assert health.wait("lamp-0", HealthStatus.UNHEALTHY).message == "burnt"
        health.wait_reported(2)
        assert health.devices["lamp-1"].status is HealthStatus.HEALTHY


def test_a_status_that_does_not_come_is_an_error_that_names_device_and_limit(lamps, dra_driver):
    lamps.file(f"/{LAMPS}/lamp-0/on", "burnt")
    with dra_driver(Healthy).watching_health() as health:
        health.wait_reported()
        for device, state in (("lamp-0", "UNHEALTHY: burnt"), ("lamp-7", "UNKNOWN: no report mentions it")):
            with pytest.raises(AssertionError) as caught:
                health.wait(device, HealthStatus.HEALTHY, 0.05)
            prefix = f"device {device} of driver lamps.example.com was not HEALTHY within 0.05 s"
            assert str(caught.value) == f"{prefix}; it is {state}"


def test_what_the_health_hook_raises_is_raised_and_it_starts_again(dra_driver):
    with dra_driver(Broken).watching_health() as health:
        with pytest.raises(HookError, match=r"dra_device_health of driver lamps.example.com failed: OSError: no bus"):
            health.wait_reported()
        health.wait("lamp-0", HealthStatus.HEALTHY)


def test_a_health_hook_that_ends_is_an_error(dra_driver):
    with pytest.raises(HookError, match=r"dra_device_health of driver lamps.example.com ended before stop was set"):
        dra_driver(Short).health()


class Elsewhere(Healthy):
    """Reports its lamps in a pool that does not exist."""

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        for report in super().dra_device_health(node, stop):
            yield [replace(health, pool="attic") for health in report]


def test_health_that_a_node_would_drop_is_an_error_that_names_the_right_pool(lamps, dra_driver):
    driver = dra_driver(Elsewhere)
    with pytest.raises(
        HookError, match=f"device attic/lamp-0 is not published, but device lamp-0 of pool {lamps.name} is"
    ):
        driver.health()
