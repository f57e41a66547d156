"""`dra-sdk doctor`: what it prints and its exit status."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from dra_sdk.testing.sysfs import regular_machine
from dra_sdk.tools.doctor.cluster import PERMISSIONS
from dra_sdk.tools.manifests import Chart
from tests.cli.commands import Run, runner


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Without a cluster, and with a node in `tmp_path`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for folder in ("kubelet/plugins_registry", "kubelet/plugins", "cdi"):
        (tmp_path / folder).mkdir(parents=True)
    called = runner(capsys)
    flags = "--kubelet-dir", tmp_path / "kubelet", "--cdi-dir", tmp_path / "cdi", "--host-root", tmp_path
    return lambda *words: called("doctor", *flags, *words)


def test_what_cannot_be_seen_is_no_failure_and_is_told(run: Run) -> None:
    done = run()
    assert done.status == 0, done.err
    assert "unknown API server: there are no credentials" in done.out
    assert done.out.splitlines()[-1].endswith("checks: 0 missing, 6 not visible from here")


def test_something_missing_is_status_1_with_its_remedy(run: Run, tmp_path: Path) -> None:
    (tmp_path / "cdi").rmdir()
    (tmp_path / "cdi").touch()
    done = run("--nri")
    assert done.status == 1
    assert f"missing directory {tmp_path / 'cdi'}: is no directory\n        → mount it" in done.out
    assert "missing NRI: nobody listens at" in done.out


@pytest.mark.parametrize("name", ["dra.cpu", "cpu"])
def test_a_driver_has_directories_of_its_own(run: Run, tmp_path: Path, name: str) -> None:
    own = tmp_path / "kubelet/plugins_registry/dra.cpu", tmp_path / "kubelet/plugins/dra.cpu"
    own[0].mkdir()
    done = run(name, "--registry-dir", own[0])
    assert f"ok      directory {own[0]}: can be written" in done.out
    assert f"ok      directory {own[1]}: does not exist yet; it is made when a driver is installed" in done.out


def test_in_a_pod_a_directory_that_is_absent_is_not_mounted(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_UID", "0a1b")
    done = run("dra.cpu")
    assert done.status == 1
    assert f"missing directory {tmp_path / 'kubelet/plugins/dra.cpu'}: does not exist" in done.out


def test_what_the_pod_of_a_driver_needs_is_known_from_the_chart(run: Run, tmp_path: Path) -> None:
    (tmp_path / "proc/1").mkdir(parents=True)
    (tmp_path / "proc/1/mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    assert "ok      the host's / as a shared mount: it is private" in run().out
    assert "missing the host's / as a shared mount: it is private" in run("dra.net").out
    assert "missing NRI" in run("dra.net").out
    assert "missing NRI" not in run("gpu.nvidia.com").out


def test_a_kubelet_that_gives_cpus_away_matters_to_the_driver_for_cpus(run: Run, tmp_path: Path) -> None:
    (tmp_path / "kubelet/cpu_manager_state").write_text('{"policyName":"static","defaultCpuSet":"0-3"}')
    assert run().status == 0
    done = run("dra.cpu")
    assert done.status == 1
    assert "missing CPU manager of the kubelet: policy static" in done.out


def test_a_misspelt_driver_is_bad_input(run: Run) -> None:
    done = run("cpuu")
    assert (done.status, done.out) == (2, "")
    assert "there is no driver 'cpuu'; installed are " in done.err


def test_the_nri_socket_is_the_one_that_the_chart_set(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "nri.sock"
    monkeypatch.setenv("DRA_SDK_NRI_SOCKET", str(path))
    assert f"missing NRI: nobody listens at {path}" in run().out
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        assert f"ok      NRI: the runtime listens at {path}" in run().out


def test_the_hardware_of_an_installed_driver_is_read_and_what_cannot_be_read_is_named(run: Run, tmp_path: Path) -> None:
    """A fact that is left out is unknown, a device is missing, and so is all that a failed discovery would find."""
    machine = regular_machine(cores=3, threads=1).write(tmp_path)
    assert "ok      hardware of dra.cpu: all that it reads can be read" in run("cpu").out
    topology = machine.sys / "devices/system/cpu/cpu1/topology"
    (topology / "die_id").write_text("?")
    assert f"unknown {topology}/die_id: {topology}/die_id: expected a decimal number, found '?'" in run("cpu").out
    (topology / "core_id").unlink()
    done = run("cpu")
    assert (done.status, f"missing CPU 1: {topology}/core_id cannot be read" in done.out) == (1, True)
    (machine.sys / "devices/system/cpu/online").unlink()
    assert "missing hardware of dra.cpu: " in run("cpu").out


def test_as_json(run: Run, tmp_path: Path) -> None:
    findings = json.loads(run("-o", "json").out)
    (registry,) = [finding for finding in findings if finding["subject"].endswith("plugins_registry")]
    assert registry == {
        "status": "ok",
        "subject": f"directory {tmp_path / 'kubelet/plugins_registry'}",
        "found": "can be written",
        "remedy": "",
    }


@pytest.mark.parametrize(
    ("words", "problem"),
    [(["--host-root", "/nothing"], "--host-root /nothing is not"), (["--kubeconfig", "/nothing"], "/nothing")],
)
def test_bad_input_is_status_2(run: Run, words: list[str], problem: str) -> None:
    done = run(*words)
    assert done.status == 2
    assert problem in done.err


def test_the_permissions_that_it_asks_about_are_those_of_the_chart() -> None:
    made = [manifest.object for manifest in Chart().render({"drivers": {"cpu": {"enabled": True}}})]
    (role,) = [obj for obj in made if obj["kind"] == "ClusterRole" and obj["metadata"]["name"] == "dra-cpu"]
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert granted == set(PERMISSIONS)
