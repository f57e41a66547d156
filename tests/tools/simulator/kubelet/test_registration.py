from __future__ import annotations

import os
import socket
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator.kubelet.emulator import KubeletEmulator
from dra_sdk.tools.simulator.kubelet.records import GET_INFO, NOTIFY, NotRegisteredError
from dra_sdk.tools.simulator.kubelet.registration import sockets_in
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.tools.simulator.local import LocalClient
from tests.tools.simulator.fakes import FakeDriver
from tests.tools.simulator.kubelet.conftest import NODE

DRIVER = "gpu.example.com"


def rules(kubelet: KubeletEmulator) -> set[str]:
    return {error.rule for error in kubelet.registration_errors}


def wait_for_rule(kubelet: KubeletEmulator, rule: str) -> None:
    wait(lambda: rule in rules(kubelet))


def test_registers_and_tells_the_driver(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir) as driver:
        (info,) = kubelet.wait_for_driver(DRIVER)
        assert driver.notified == [(True, "")]
    assert info.connected
    assert (info.endpoint, info.socket) == (str(driver.service), str(driver.registration))
    assert info.service == "v1.DRAPlugin"
    assert [call.kind for call in kubelet.records.calls() if call.kind in {GET_INFO, NOTIFY}] == [GET_INFO, NOTIFY]


def test_a_socket_that_is_there_at_the_start_is_registered(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    kubelet.stop()
    with FakeDriver(kubelet_dir):
        kubelet.start()
        assert kubelet.wait_for_driver(DRIVER)


def test_the_drivers_order_of_versions_wins(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir, versions=("v9.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAPlugin")):
        (info,) = kubelet.wait_for_driver(DRIVER)
    assert info.service == "v1beta1.DRAPlugin"


def test_an_empty_endpoint_means_the_registration_socket(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir, common_socket=True) as driver:
        (info,) = kubelet.wait_for_driver(DRIVER)
    assert info.endpoint == str(driver.registration)


@pytest.mark.parametrize("versions", [(), ("1.0.0",), ("v1.DRAResourceHealth",)])
def test_unknown_versions_are_refused_and_the_driver_told(
    kubelet: KubeletEmulator, kubelet_dir: Path, versions: tuple[str, ...]
) -> None:
    with FakeDriver(kubelet_dir, versions=versions) as driver:
        wait_for_rule(kubelet, "supported-versions")
        registered, error = driver.notified[0]
    assert not registered
    assert "supported" in error
    error = kubelet.registration_errors[0]
    assert (error.driver, error.socket) == (DRIVER, str(driver.registration))
    assert not kubelet.plugins


def test_another_plugin_type_is_refused_and_the_driver_told(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir, plugin_type="CSIPlugin") as driver:
        wait_for_rule(kubelet, "plugin-type")
    assert driver.notified[0][0] is False
    assert "CSIPlugin" in driver.notified[0][1]


def test_the_refusal_stays_the_error_if_the_driver_does_not_take_it(
    kubelet: KubeletEmulator, kubelet_dir: Path
) -> None:
    def offended(registered: bool, error: str) -> None:
        raise ValueError(error)

    driver = FakeDriver(kubelet_dir, versions=("1.0.0",))
    driver.on_notify = offended
    with driver:
        wait_for_rule(kubelet, "supported-versions")
    assert "notify" not in rules(kubelet)


def test_get_info_has_a_second_and_is_tried_again(api: LocalClient, kubelet_dir: Path, timing: KubeletTiming) -> None:
    answering = threading.Event()
    driver = FakeDriver(kubelet_dir)
    driver.on_get_info = lambda: answering.wait(LONG)
    strict = replace(timing, get_info=KubeletTiming().get_info)
    with KubeletEmulator(NODE, api, kubelet_dir, timing=strict) as kubelet, driver:
        assert kubelet.records.wait(lambda calls: any(call.kind == GET_INFO for call in calls), LONG)
        answering.set()
        assert kubelet.wait_for_driver(DRIVER, timeout=LONG)
    first = kubelet.records.calls(GET_INFO)[0]
    assert "DEADLINE_EXCEEDED" in first.error
    assert first.seconds > 0.9
    assert driver.notified == [(True, "")]


def test_a_driver_that_refuses_the_notification_is_tried_again(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    failures = [True, True]
    driver = FakeDriver(kubelet_dir)

    def refuse_twice(registered: bool, error: str) -> None:
        if failures:
            failures.pop()
            raise ValueError("not now")

    driver.on_notify = refuse_twice
    with driver:
        assert kubelet.wait_for_driver(DRIVER)
        assert len(kubelet.plugins) == 1
    assert [registered for registered, _ in driver.notified] == [True, True, True]
    assert rules(kubelet) == {"notify"}


def test_a_socket_that_nobody_listens_on_is_an_error_until_somebody_does(
    api: LocalClient, kubelet_dir: Path, timing: KubeletTiming
) -> None:
    driver = FakeDriver(kubelet_dir)
    registration = driver.registration
    hidden = registration.with_name(".hidden")
    with KubeletEmulator(NODE, api, kubelet_dir, timing=replace(timing, dial=0.1)) as kubelet:
        driver.start()
        kubelet.wait_for_driver(DRIVER, timeout=LONG)
        registration.rename(hidden)
        driver.stop()
        assert kubelet.wait_for_plugins(lambda infos: not infos, LONG)
        errors = len(kubelet.registration_errors)
        hidden.rename(registration)
        wait(lambda: len(kubelet.registration_errors) > errors)
        assert kubelet.registration_errors[-1].rule == "dial"
        registration.unlink()
        with driver:
            assert kubelet.wait_for_driver(DRIVER, timeout=LONG)


def test_hidden_names_and_other_files_are_ignored_and_folders_are_searched(
    kubelet: KubeletEmulator, kubelet_dir: Path
) -> None:
    registry = kubelet_dir / "plugins_registry"
    (registry / "file.sock").write_text("no socket")
    hidden = FakeDriver(kubelet_dir, "hidden.example.com")
    hidden.registration = registry / ".hidden.sock"
    nested = FakeDriver(kubelet_dir, "nested.example.com")
    nested.registration = registry / "below" / "nested.sock"
    with hidden, nested:
        assert kubelet.wait_for_driver("nested.example.com")
        assert [info.driver for info in kubelet.plugins] == ["nested.example.com"]
    assert not kubelet.registration_errors


def test_a_vanished_socket_deregisters_and_a_new_one_registers_again(
    kubelet: KubeletEmulator, kubelet_dir: Path
) -> None:
    with FakeDriver(kubelet_dir) as driver:
        kubelet.wait_for_driver(DRIVER)
        driver.stop_registration()
        assert kubelet.wait_for_no_driver(DRIVER)
        assert not kubelet.plugins
        driver.start_registration()
        assert kubelet.wait_for_driver(DRIVER)
    assert driver.notified == [(True, ""), (True, "")]


def test_a_socket_made_again_under_the_same_path_registers_again(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir) as driver:
        kubelet.wait_for_driver(DRIVER)
        other = FakeDriver(kubelet_dir, instance="other")
        other.registration = driver.registration.with_name(".hidden")
        with other:
            other.registration.replace(driver.registration)
            assert kubelet.records.wait(lambda calls: other.notified == [(True, "")], LONG)
            kubelet.wait_for_driver(DRIVER)
            assert [info.endpoint for info in kubelet.plugins] == [str(other.service)]


def test_an_endpoint_is_registered_once(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir) as driver:
        kubelet.wait_for_driver(DRIVER)
        thief = FakeDriver(kubelet_dir, instance="thief")
        thief.endpoint = driver.endpoint
        thief.start_registration()
        wait_for_rule(kubelet, "endpoint-taken")
        thief.stop()
    assert thief.notified[0][0] is False
    assert "already registered" in thief.notified[0][1]


def test_the_error_of_waiting_in_vain_has_the_failed_attempts(kubelet: KubeletEmulator, kubelet_dir: Path) -> None:
    with FakeDriver(kubelet_dir, versions=()):
        wait_for_rule(kubelet, "supported-versions")
        with pytest.raises(NotRegisteredError, match="empty list of supported gRPC services"):
            kubelet.wait_for_driver(DRIVER, timeout=0.1)


def bind(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def test_only_visible_sockets_are_found(kubelet_dir: Path) -> None:
    for name in ("a.sock", "below/b.sock", ".hidden.sock", ".below/c.sock"):
        bind(kubelet_dir / name)
    (kubelet_dir / "file.sock").touch()
    (kubelet_dir / "gone.sock").symlink_to("nowhere")
    assert {Path(path).name for path in sockets_in(kubelet_dir)} == {"a.sock", "b.sock"}


def test_a_socket_made_again_has_another_identity(kubelet_dir: Path) -> None:
    path = kubelet_dir / "a.sock"
    bind(path)
    before = sockets_in(kubelet_dir)
    path.chmod(0o600)
    assert sockets_in(kubelet_dir) == before
    path.unlink()
    bind(path)
    os.utime(path, ns=(0, 0))
    assert sockets_in(kubelet_dir) != before


def test_no_directory_has_no_sockets(kubelet_dir: Path) -> None:
    assert sockets_in(kubelet_dir / "missing") == {}
