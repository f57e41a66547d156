"""Socket files that somebody removes or replaces while the driver runs: they come back, or it is told why not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from dra_sdk.node import threads
from dra_sdk.node.runtime import sockets
from dra_sdk.testing.waiting import LONG, wait
from tests.faults.site import Inside


@pytest.fixture(scope="module", autouse=True)
def quick() -> Iterator[None]:
    """Drivers that look after their sockets all the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sockets, "LOOK_SECONDS", 0.01)
        patch.setattr(threads, "FIRST_DELAY", 0.01)
        patch.setattr(threads, "LAST_DELAY", 0.1)
        yield


@pytest.fixture(params=["registration", "service"])
def path(request: pytest.FixtureRequest, site: Inside) -> Path:
    return Path(getattr(site.process.paths, request.param))


def registers_again(site: Inside) -> None:
    site.cluster.kubelet.restart()
    site.wait_registered()


def replace(path: Path) -> None:
    """At once, so that no look comes in between."""
    path.with_name(".other").write_text("precious")
    path.with_name(".other").rename(path)


def test_a_socket_that_was_removed(site: Inside, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ref = site.claim("lamp-0")
    site.prepare(ref)
    for _ in range(3):
        path.unlink()
        wait(path.is_socket)
    assert f"{path} was removed or replaced; making it again" in caplog.text
    registers_again(site)
    site.prepare(ref)
    site.unprepare(ref)


def test_a_call_under_way_when_its_socket_is_lost_is_answered(site: Inside) -> None:
    ref, service = site.claim("lamp-0"), site.process.paths.service
    entered, leave = Event(), Event()

    def step(name: str) -> None:
        if name == "prepare: on":
            entered.set()
            assert leave.wait(LONG)

    site.driver.step = step
    with site.calls() as calls, ThreadPoolExecutor(1) as pool:
        call = pool.submit(calls.prepare, [ref], timeout=LONG)
        assert entered.wait(LONG)
        service.unlink()
        wait(service.is_socket)
        with pytest.raises(TimeoutError):
            call.result(2 * sockets.LAST_SECONDS)
        leave.set()
        assert call.result(LONG).claims[ref.uid].error == ""
    # The kubelet's connection leads to the server that just ends, so its first call may be cut off.
    site.cluster.kubelet.retry(lambda: site.unprepare(ref), LONG)


def test_a_socket_that_was_replaced_by_a_file(site: Inside, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    replace(path)
    wait(lambda: f"{path} exists and is not a socket; remove it" in caplog.text)
    assert path.read_text() == "precious"
    path.unlink()
    wait(path.is_socket)
    registers_again(site)


def test_both_are_looked_after_while_one_cannot_be_made(site: Inside) -> None:
    service, registration = site.process.paths.service, site.process.paths.registration
    replace(service)
    registration.unlink()
    wait(registration.is_socket)
    service.unlink()
    wait(service.is_socket)
    registers_again(site)
