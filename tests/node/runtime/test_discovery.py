"""Discovery: at the start, on demand, after a failure, and what prepare knows of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from threading import Event
from typing import Any

import pytest

from dra_sdk import Device, DriverInfo, HardwareError, Node, ResourcePool
from dra_sdk.errors import HookError, RetriableError
from dra_sdk.loader import Driver
from dra_sdk.node import threads
from dra_sdk.node.runtime import discovery
from dra_sdk.node.runtime.discovery import Discovery
from dra_sdk.testing.waiting import LONG, wait

NODE = Node("node-a")
Pools = Sequence[ResourcePool]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "FIRST_DELAY", 0.001)
    monkeypatch.setattr(threads, "LAST_DELAY", 0.004)


class Lamps:
    """A driver whose discovery is given."""

    def __init__(self, found: Callable[[], Any]) -> None:
        self.found = found

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("lamps.example.com")

    def dra_discover(self, node: Node) -> Any:
        return self.found()

    def dra_prepare(self, claim: Any) -> list[Any]:
        return []


def driver(found: Callable[[], Any]) -> Driver:
    return Driver.of(Lamps(found))


class Published:
    """Collects what is handed out."""

    def __init__(self) -> None:
        self.sets: list[list[str]] = []
        self.fails = 0

    def __call__(self, pools: Pools) -> None:
        if self.fails:
            self.fails -= 1
            raise OSError("not now")
        self.sets.append([f"{pool.name}/{device.name}" for pool in pools for device in pool.devices])


@pytest.fixture
def start() -> Iterator[Callable[..., tuple[Discovery, Published]]]:
    """Starts a discovery that ends with the test."""
    running: list[Discovery] = []

    def begin(plugin: Any, fails: int = 0) -> tuple[Discovery, Published]:
        published = Published()
        published.fails = fails
        made = Discovery(Driver.of(plugin), NODE, published)
        running.append(made)
        made.start()
        return made, published

    yield begin
    for each in running:
        assert each.stop(LONG), "a thread goes on"


@pytest.mark.parametrize("found", [[], (), iter([])])
def test_nothing_found_is_a_pool_without_devices(found: Any) -> None:
    assert driver(lambda: found).discover(NODE) == [ResourcePool("node-a", [])]


@pytest.mark.parametrize("kind", [list, tuple, iter])
def test_devices_make_the_nodes_own_pool_in_their_order(kind: Any) -> None:
    devices = [Device("b"), Device("a")]
    assert driver(lambda: kind(devices)).discover(NODE) == [ResourcePool("node-a", devices)]


def test_pools_are_taken_as_they_are() -> None:
    pools = [ResourcePool("x", [Device("a")]), ResourcePool("y")]
    assert driver(lambda: iter(pools)).discover(NODE) == pools


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (None, "returned None"),
        (7, "returned 7"),
        ("lamp-0", "returned 'lamp-0'"),
        (b"lamp-0", "returned b'lamp-0'"),
        (["lamp-0"], r"returned \['str'\]"),
        ([Device("a"), ResourcePool("x")], r"returned \['Device', 'ResourcePool'\]"),
        ([Device("a"), None], r"returned \['Device', 'NoneType'\]"),
    ],
)
def test_anything_else_is_the_hooks_error(found: Any, text: str) -> None:
    with pytest.raises(HookError, match=f"dra_discover of driver lamps.example.com {text}.*want Device values only"):
        driver(lambda: found).discover(NODE)


def test_a_raise_is_an_error_of_ours_even_half_way() -> None:
    def half() -> Iterator[Device]:
        yield Device("a")
        raise OSError(5, "bus error")

    with pytest.raises(HookError, match=r"dra_discover of driver lamps.example.com failed: OSError: \[Errno 5\] bus"):
        driver(half).discover(NODE)

    def missing() -> Any:
        raise HardwareError("/sys/bus/pci is missing")

    with pytest.raises(HardwareError):
        driver(missing).discover(NODE)

    def exits() -> Any:
        raise SystemExit(1)

    with pytest.raises(HookError, match="SystemExit: 1"):
        driver(exits).discover(NODE)


def test_what_is_found_is_published_and_known_to_prepare(start: Any) -> None:
    found, published = start(Lamps(lambda: [Device("lamp-0", attributes={"watts": 5})]))
    assert found.published("node-a", "lamp-0") == Device("lamp-0", attributes={"watts": 5})
    assert found.published("node-a", "lamp-1") is None
    assert found.published("other", "lamp-0") is None
    wait(lambda: published.sets == [["node-a/lamp-0"]])


def test_asking_again_publishes_again(start: Any) -> None:
    devices = [Device("lamp-0")]
    found, published = start(Lamps(lambda: devices))
    wait(lambda: len(published.sets) == 1)
    devices = [Device("lamp-1")]
    found.again()
    wait(lambda: published.sets[1:] == [["node-a/lamp-1"]])
    assert found.published("node-a", "lamp-0") is None


def test_a_failure_keeps_what_was_known_and_is_repeated(
    start: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "FIRST_DELAY", 0.05)
    monkeypatch.setattr(threads, "LAST_DELAY", 60.0)
    calls: list[int] = []

    def flaky() -> list[Device]:
        calls.append(1)
        if len(calls) in {2, 3, 4, 6, 7, 8}:
            raise OSError("bus error")
        return [Device(f"lamp-{len(calls)}")]

    with caplog.at_level(logging.ERROR):
        found, published = start(Lamps(flaky))
        for number in (1, 5, 9):
            wait(lambda number=number: published.sets[-1:] == [[f"node-a/lamp-{number}"]])
            assert found.published("node-a", f"lamp-{number}")
            if number < 9:
                found.again()
    first, second, third = (["node-a/lamp-1"], ["node-a/lamp-5"], ["node-a/lamp-9"])
    assert published.sets == [first, first, second, second, third]  # after three failures once more, with a taint
    messages = [record.getMessage() for record in caplog.records if "starts again" in record.getMessage()]
    assert all("bus error" in each for each in messages)
    delays = [each.rpartition("starts again in ")[2] for each in messages]
    assert delays == ["0.1 s", "0.1 s", "0.2 s"] * 2, "after a success the delay starts from the beginning"


def test_pools_that_could_not_be_handed_over_are_handed_over_later(start: Any) -> None:
    _, published = start(Lamps(lambda: [Device("lamp-0")]), fails=2)
    wait(lambda: published.sets == [["node-a/lamp-0"]])


def test_prepare_waits_for_the_first_discovery_and_then_asks_for_a_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "FIRST_WAIT", 0.01)
    waiting = Discovery(driver(list), NODE, Published())
    with pytest.raises(RetriableError, match=r"driver lamps\.example\.com has not finished discovering"):
        waiting.published("node-a", "lamp-0")
    waiting.stop(LONG)


class Watching(Lamps):
    """Waits for hardware to change."""

    def __init__(self, found: Callable[[], Any], fails: int = 0) -> None:
        super().__init__(found)
        self.plugged, self.fails = Event(), fails
        self.starts = 0

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        self.starts += 1
        if self.starts <= self.fails:
            raise OSError("no netlink")
        while not stop.is_set():
            if self.plugged.wait(0.01):
                self.plugged.clear()
                changed()


def test_a_change_that_is_watched_is_published(start: Any) -> None:
    devices = [Device("lamp-0")]
    watching = Watching(lambda: list(devices), fails=2)
    _, published = start(watching)
    wait(lambda: len(published.sets) == 1)
    devices.append(Device("lamp-1"))
    watching.plugged.set()
    wait(lambda: published.sets[1:] == [["node-a/lamp-0", "node-a/lamp-1"]])
    assert watching.starts == 3


def test_a_change_before_the_watch_has_begun_is_published(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hook that does not say when it has begun to watch: discovery runs once more after a time."""
    monkeypatch.setattr(discovery, "WATCH_BEGINS", 0.05)
    found = iter([[Device("lamp-0")]])
    watching = Watching(lambda: next(found, [Device("lamp-0"), Device("lamp-1")]), fails=1)
    _, published = start(watching)
    wait(lambda: published.sets[-1:] == [["node-a/lamp-0", "node-a/lamp-1"]])
    assert not watching.plugged.is_set()


@pytest.mark.parametrize("error", [OSError("no netlink"), None])
def test_an_end_of_the_watch_that_nobody_asked_for_is_told(error: OSError | None) -> None:
    class Ends(Lamps):
        def dra_watch(self) -> None:
            if error:
                raise error

    told: list[BaseException | None] = []
    made = Discovery(Driver.of(Ends(list)), NODE, Published(), watch_ended=told.append)
    made.start()
    wait(lambda: told)
    assert made.stop(LONG)
    assert (told[0] is None) == (error is None)


def test_a_watch_that_ends_by_itself_is_told(start: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Ends(Lamps):
        def dra_watch(self) -> None:
            return

    with caplog.at_level(logging.WARNING):
        start(Ends(list))
        wait(lambda: "hardware changes are not noticed" in caplog.text)


def test_stopping_does_not_discover_once_more(start: Any) -> None:
    calls: list[int] = []
    found, published = start(Lamps(lambda: calls.append(1) or []))  # type: ignore[func-returns-value]
    wait(lambda: len(published.sets) == 1)
    found.stop(LONG)
    assert calls == [1]


def test_stopping_ends_every_thread_even_one_that_failed_last(start: Any) -> None:
    def broken() -> Any:
        raise OSError("bus error")

    watching = Watching(broken)
    found, _ = start(watching)
    wait(lambda: watching.starts == 1)
    assert found.stop(LONG)


def test_what_a_hook_gave_is_told_in_few_words() -> None:
    many = ResourcePool("x", [Device(f"lamp-{number}") for number in range(1000)])
    for found, text in (
        (Device("a"), "returned one Device, not a list of them; want Device values only"),
        (many, "returned one ResourcePool, not a list of them"),
        ({"a": Device("a")}, "returned a dict, not a list"),
    ):
        with pytest.raises(HookError, match=f"dra_discover of driver lamps.example.com {text}") as caught:
            driver(lambda found=found: found).discover(NODE)  # type: ignore[misc]
        assert len(str(caught.value)) < 200


def test_a_raise_is_told_with_the_authors_line() -> None:
    def raising() -> Any:
        raise KeyError("watts")

    with pytest.raises(HookError, match=r"failed: KeyError: 'watts' \(test_discovery.py, line \d+\)$"):
        driver(raising).discover(NODE)


def test_a_slow_discovery_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "SLOW_SECONDS", 0.01)
    published = Published()

    def found() -> list[Device]:
        wait(lambda: "dra_discover of driver lamps.example.com has been running for 0.01 s" in caplog.text)
        return [Device("lamp-0")]

    running = Discovery(driver(found), NODE, published)
    running.start()
    wait(lambda: published.sets)
    assert running.stop(LONG)
