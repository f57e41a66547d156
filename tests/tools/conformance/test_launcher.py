from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.conformance.environment import NodeEnvironment
from dra_sdk.tools.conformance.launcher import (
    FIXED_POD_UID,
    CommandLauncher,
    InstanceProcess,
    deferred_signals,
    sdk_launcher,
)

ENVIRONMENT = NodeEnvironment(
    cast("Any", None),
    "node-7",
    "ns",
    Path("/k/plugins_registry"),
    Path("/k/plugins"),
    (Path("/static"), Path("/cdi")),
    Path("/kubeconfig"),
)
SLEEP = "import threading; threading.Event().wait()"
DEAF = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True)"


def start(script: str, *arguments: str, pod_uid: str = "", **options: Any) -> InstanceProcess:
    launcher = CommandLauncher([sys.executable, "-c", script, *arguments], **options)
    return launcher.start(ENVIRONMENT, pod_uid)


def output(process: InstanceProcess) -> str:
    wait(process.exit_reason)
    text = process.log()
    process.kill()
    return text


def test_placeholders_and_environment_describe_the_node() -> None:
    values = "os.environ['NODE_NAME'], os.environ['CDI_ROOT'], os.environ['NRI_SOCKET'], 'POD_UID' in os.environ"
    script = f"import os, sys; print(*sys.argv[1:], {values})"
    places = "{kubeconfig} {kubelet_dir} {registry_dir} {plugins_dir}/x {cdi_dir} {node_name} {host_root} {nri_socket}"
    text = output(start(script, *places.split(), "{other}"))
    nri = "/var/run/nri/nri.sock"
    assert (
        text == f"/kubeconfig /k /k/plugins_registry /k/plugins/x /cdi node-7 / {nri} {{other}} node-7 /cdi {nri} False"
    )


def test_an_instance_gets_the_uid_of_its_pod() -> None:
    script = "import os, sys; print(*sys.argv[1:], os.environ.get('POD_UID'))"
    assert output(start(script, "{pod_uid}", pod_uid="uid-1")) == "uid-1 uid-1"
    assert output(start(script, "{pod_uid}")) == f"{FIXED_POD_UID} {FIXED_POD_UID}"
    flags = ["--pod-uid={pod_uid}"]
    assert output(start(script, "x", pod_uid="uid-1", pod_uid_arguments=flags)) == "x --pod-uid=uid-1 uid-1"
    assert CommandLauncher(["a", "{pod_uid}"]).concurrent
    assert CommandLauncher(["a"], pod_uid_arguments=["--u"]).concurrent
    assert not CommandLauncher(["a"]).concurrent


def test_a_process_says_how_it_ended() -> None:
    process = start("import sys; print('no luck'); sys.exit(3)")
    assert output(process) == "no luck"
    assert process.exit_reason() == "ended with status 3"
    killed = start(SLEEP)
    assert killed.exit_reason() == ""
    assert killed.open_files()
    killed.kill()
    assert killed.exit_reason() == f"was killed by {signal.SIGKILL.name}"
    assert killed.open_files() is None


def test_a_process_that_ignores_sigterm_is_killed() -> None:
    assert start(SLEEP).terminate(LONG)
    deaf = start(f"{DEAF}; {SLEEP}")
    wait(deaf.log)
    assert not deaf.terminate(0.1)
    assert deaf.exit_reason() == "was killed by SIGKILL"
    assert deaf.log() == "1"


def test_a_signal_during_a_start_is_handled_after_it() -> None:
    received: list[str] = []

    def started() -> None:
        with deferred_signals():
            signal.raise_signal(signal.SIGTERM)
            received.append("started")

    def stop(_number: int, _frame: Any) -> None:
        received.append("handled")
        raise SystemExit

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with pytest.raises(SystemExit):
            started()
        assert signal.getsignal(signal.SIGTERM) is stop
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == ["started", "handled"]


def test_a_command_that_cannot_be_run_is_an_error() -> None:
    with pytest.raises(SettingsError, match="cannot run /absent: No such file"):
        CommandLauncher.parse("/absent --flag").start(ENVIRONMENT, "")
    with pytest.raises(SettingsError, match="the driver's command line is empty"):
        CommandLauncher.parse(" ")
    with pytest.raises(SettingsError, match="No closing quotation"):
        CommandLauncher.parse("'a")


def test_a_driver_of_the_sdk_is_started_by_dra_sdk_run() -> None:
    launcher = sdk_launcher("cpu")
    assert launcher.concurrent
    command = launcher.command(ENVIRONMENT, "uid-1")
    assert command[1:6] == ["-m", "dra_sdk.cli.main", "run", "cpu", "--kubeconfig=/kubeconfig"]
    assert command[-1] == "--pod-uid=uid-1"
    assert launcher.command(ENVIRONMENT, "")[-1] == "--host-root=/"
