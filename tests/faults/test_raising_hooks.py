"""Whatever a hook raises, it is this claim's error, in words, and what was begun is undone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dra_sdk.node import threads
from dra_sdk.testing.waiting import wait
from dra_sdk.tools.simulator.kubelet.records import ResponseError
from tests.faults.site import Inside


class OwnError(BaseException):
    """What an author derives from the wrong class."""


RAISED = [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError, RecursionError, StopIteration, OwnError]


def raising(where: str, *kinds: type[BaseException]) -> Callable[[str], Any]:
    """A step that raises one of `kinds` each time it is reached, until there are none left."""
    left = [kind("on purpose") for kind in kinds]

    def step(name: str) -> None:
        if name == where and left:
            raise left.pop(0)

    return step


@pytest.mark.parametrize("where", ["prepare: begin", "prepare: on", "prepare: end"])
@pytest.mark.parametrize("kind", RAISED)
def test_prepare(site: Inside, kind: type[BaseException], where: str) -> None:
    ref = site.claim("lamp-0", "lamp-1")
    site.driver.step = raising(where, kind)
    name = "RuntimeError" if kind is StopIteration else kind.__name__  # PEP 479
    with pytest.raises(ResponseError, match=f"dra_prepare of driver lamps.example.com failed: {name}") as caught:
        site.prepare(ref)
    assert f"prepare claim default/{ref.name} ({ref.uid})" in str(caught.value)
    site.assert_held()
    site.prepare(ref)
    site.assert_held(ref)
    site.unprepare(ref)


@pytest.mark.parametrize("where", ["unprepare: begin", "unprepare: out"])
@pytest.mark.parametrize("kind", RAISED)
def test_unprepare(site: Inside, kind: type[BaseException], where: str) -> None:
    ref, other = site.claim("lamp-0", "lamp-1"), site.claim("lamp-0")
    site.prepare(ref)
    site.driver.step = raising(where, kind)
    with pytest.raises(ResponseError, match=f"dra_unprepare of driver lamps.example.com failed: {kind.__name__}"):
        site.unprepare(ref)
    with pytest.raises(ResponseError, match=f"lamp-0 is held by claim default/{ref.name}"):
        site.prepare(other)
    site.unprepare(ref)
    site.prepare(other)
    site.assert_held(other)
    site.unprepare(other)


def test_prepare_and_the_undoing_of_it(site: Inside) -> None:
    ref = site.claim("lamp-0", "lamp-1")
    first, second = raising("prepare: end", KeyboardInterrupt), raising("unprepare: out", SystemExit)
    site.driver.step = lambda name: (first(name), second(name))
    with pytest.raises(ResponseError, match=r"KeyboardInterrupt: .*; undoing it failed as well: .*SystemExit"):
        site.prepare(ref)
    assert site.shining(), "the undoing did not get to the second lamp"
    site.unprepare(ref)
    site.assert_held()


def test_one_bad_claim_of_a_call_is_alone(site: Inside) -> None:
    good, bad, other = site.claim("lamp-0"), site.claim("lamp-1"), site.claim("lamp-2")
    site.driver.step = lambda name: raise_for(bad.uid) if name == "prepare: on" else None

    def raise_for(uid: str) -> None:
        if site.driver.prepared[-1] == uid:
            raise KeyboardInterrupt

    with pytest.raises(ResponseError, match=bad.uid):
        site.prepare(good, bad, other)
    site.assert_held(good, other)
    site.unprepare(good, bad, other)


def test_discovery_and_watching_go_on(
    fresh: Inside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "FIRST_DELAY", 0.001)
    finding, watching = raising("discover", *RAISED), raising("watch", *RAISED)
    fresh.driver.step = lambda name: (finding(name), watching(name))
    with fresh.running():
        fresh.wait_registered()
        wait(lambda: len(fresh.slices()) == 40)
        wait(lambda: caplog.text.count(" watch failed: ") == len(RAISED))
        for kind in RAISED:
            name = "RuntimeError" if kind is StopIteration else kind.__name__
            assert f"dra_discover of driver lamps.example.com failed: {name}: " in caplog.text
        fresh.driver.count = 41
        fresh.driver.step = lambda name: fresh.process.publisher.discovery.again() if name == "watch" else None
        wait(lambda: len(fresh.slices()) == 41)
        fresh.assert_sound()


def test_a_failing_discovery_keeps_what_was_published(
    site: Inside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wait(lambda: len(site.slices()) == 40)
    site.driver.step = raising("discover", KeyboardInterrupt)
    site.process.publisher.discovery.again()
    wait(lambda: "dra_discover of driver lamps.example.com failed: KeyboardInterrupt: on purpose" in caplog.text)
    assert len(site.slices()) == 40
    ref = site.claim("lamp-0")
    site.prepare(ref)
    site.unprepare(ref)
