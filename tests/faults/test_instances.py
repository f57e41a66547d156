"""More than one process of a driver on a node: by mistake, in a row, at once, and with the work divided."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.loader import Driver
from dra_sdk.node.runtime import process as runtime
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator.kubelet.records import DriverCallError, ResponseError
from tests.embedded import settings_for
from tests.faults.lamps import WatchedLamps
from tests.faults.site import Inside
from tests.lamps import NAME

POD = "0a1b2c3d-0000-4000-8000-000000000001"
NEXT = "0a1b2c3d-0000-4000-8000-000000000002"


@contextmanager
def another(site: Inside, **settings: Any) -> Iterator[DriverProcess]:
    """A further process of the same driver."""
    process = DriverProcess(Driver.of(WatchedLamps(site.lamps)), settings_for(site.cluster, **settings))
    with process:
        yield process


def test_a_second_one_waits_and_says_what_to_do(
    fresh: Inside, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(runtime, "HANDOVER_SECONDS", 1.0)
    ref = fresh.claim("lamp-0")
    with fresh.running():
        fresh.wait_registered()
        fresh.prepare(ref)
        message = f"another instance of this driver still works on {fresh.data}; end it, or give both a pod UID"
        with pytest.raises(SettingsError, match=message), another(fresh):
            pass
        assert "waiting for another instance of this driver to end" in caplog.text
        fresh.assert_held(ref)
        fresh.unprepare(ref)
        fresh.assert_sound()


def test_a_second_one_takes_over_when_the_first_ends(fresh: Inside) -> None:
    ref = fresh.claim("lamp-0")
    with ThreadPoolExecutor(1) as pool:
        with fresh.running():
            fresh.wait_registered()
            fresh.prepare(ref)
            second = another(fresh)
            starting = pool.submit(second.__enter__)
            with pytest.raises(TimeoutError):
                starting.result(0.2)
        starting.result(LONG)
    fresh.cluster.kubelet.restart()
    fresh.wait_registered()
    fresh.prepare(ref)
    fresh.assert_held(ref)
    fresh.unprepare(ref)
    second.__exit__(None, None, None)
    fresh.assert_held()


def test_two_with_pod_uids_work_side_by_side(fresh: Inside) -> None:
    old, new = fresh.claim("lamp-0"), fresh.claim("lamp-1")
    with another(fresh, pod_uid=NEXT):
        with fresh.running(pod_uid=POD):
            fresh.cluster.kubelet.wait_for_driver(NAME, instances=2, timeout=LONG)
            fresh.prepare(old)
            other = fresh.claim("lamp-0")
            with pytest.raises(ResponseError, match=f"lamp-0 is held by claim default/{old.name}"):
                fresh.prepare(other)
        wait(lambda: len([each for each in fresh.cluster.kubelet.plugins if each.connected]) == 1)
        fresh.prepare(old, new)
        fresh.assert_held(old, new)
        fresh.unprepare(old, new)
        super(Inside, fresh).assert_sound()


def test_both_services_on_one_socket(fresh: Inside) -> None:
    with fresh.running(serve="common"):
        fresh.wait_registered()
        (plugin,) = fresh.cluster.kubelet.plugins
        assert plugin.endpoint == str(fresh.cluster.registry_dir / f"{NAME}-reg.sock")
        assert not (fresh.data / "dra.sock").exists()
        fresh.assert_sound()
    assert not list(fresh.cluster.registry_dir.iterdir())


@pytest.mark.parametrize("pod_uid", ["", POD])
def test_one_process_registers_and_another_serves(fresh: Inside, pod_uid: str) -> None:
    ref = fresh.claim("lamp-0")
    with another(fresh, serve="registration", pod_uid=pod_uid):
        assert len(list(fresh.cluster.registry_dir.iterdir())) == 1
        assert not list(fresh.data.glob("*.sock"))
        with fresh.running(serve="service", pod_uid=pod_uid):
            fresh.wait_registered()
            assert len(list(fresh.cluster.registry_dir.iterdir())) == 1
            fresh.prepare(ref)
            wait(lambda: len(fresh.slices()) == 40)
        with pytest.raises(DriverCallError, match="UNAVAILABLE"):
            fresh.prepare(ref)
        assert fresh.cluster.kubelet.wait_for_no_driver(NAME, LONG)
        with fresh.running(serve="service", pod_uid=pod_uid):
            wait(lambda: all(each.connected for each in fresh.cluster.kubelet.plugins))
            fresh.prepare(ref)
            fresh.assert_held(ref)
            fresh.unprepare(ref)
            fresh.assert_sound()
    assert not list(fresh.cluster.registry_dir.iterdir())
