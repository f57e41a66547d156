from __future__ import annotations

import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.tools.conformance.launch import ONE_POD, CommandLauncher, Process, sdk_command
from dra_sdk.tools.conformance.site import Site
from tests.waiting import LONG, wait

SITE = Site(
    cast("Any", None),
    "node-7",
    "ns",
    Path("/k/plugins_registry"),
    Path("/k/plugins"),
    (Path("/static"), Path("/cdi")),
    Path("/kubeconfig"),
)


def start(script: str, *arguments: str, pod_uid: str = "", **options: Any) -> Process:
    launcher = CommandLauncher([sys.executable, "-c", script, *arguments], **options)
    return launcher.start(SITE, pod_uid)


def printed(process: Process) -> str:
    wait(process.ended)
    text = process.log()
    process.kill()
    return text


def test_placeholders_and_environment_tell_where_things_are() -> None:
    script = (
        "import os, sys; print(*sys.argv[1:], os.environ['NODE_NAME'], os.environ['CDI_ROOT'], 'POD_UID' in os.environ)"
    )
    places = "{kubeconfig} {kubelet_dir} {registry_dir} {plugins_dir}/x {cdi_dir} {node_name} {host_root} {other}"
    text = printed(start(script, *places.split()))
    assert text == ("/kubeconfig /k /k/plugins_registry /k/plugins/x /cdi node-7 / {other} node-7 /cdi False")


def test_an_instance_is_told_its_pod() -> None:
    script = "import os, sys; print(*sys.argv[1:], os.environ.get('POD_UID'))"
    assert printed(start(script, "{pod_uid}", pod_uid="uid-1")) == "uid-1 uid-1"
    assert printed(start(script, "{pod_uid}")) == f"{ONE_POD} {ONE_POD}"
    assert printed(start(script, "x", pod_uid="uid-1", with_uid=["--pod-uid={pod_uid}"])) == "x --pod-uid=uid-1 uid-1"
    assert CommandLauncher(["a", "{pod_uid}"]).instances
    assert CommandLauncher(["a"], with_uid=["--u"]).instances
    assert not CommandLauncher(["a"]).instances


def test_how_a_process_ended() -> None:
    process = start("import sys; print('no luck'); sys.exit(3)")
    assert printed(process) == "no luck"
    assert process.ended() == "ended with status 3"
    killed = start("import time; time.sleep(60)")
    assert killed.ended() == ""
    assert killed.open_files()
    killed.kill()
    assert killed.ended() == f"was ended by {signal.SIGKILL.name}"
    assert killed.open_files() is None


def test_sigterm_and_those_that_do_not_heed_it() -> None:
    assert start("import time; time.sleep(60)").terminate(LONG)
    deaf = start(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
    )
    wait(deaf.log)
    assert not deaf.terminate(0.1)
    assert deaf.ended() == "was ended by SIGKILL"
    assert deaf.log() == "1"


def test_commands_that_cannot_be_run() -> None:
    with pytest.raises(SettingsError, match="cannot run /absent: No such file"):
        CommandLauncher.parse("/absent --flag").start(SITE, "")
    with pytest.raises(SettingsError, match="the driver's command line is empty"):
        CommandLauncher.parse(" ")
    with pytest.raises(SettingsError, match="No closing quotation"):
        CommandLauncher.parse("'a")


def test_a_driver_of_the_sdk() -> None:
    launcher = sdk_command("cpu")
    assert launcher.instances
    site = replace(SITE, host_root=Path("/host"))
    assert launcher._command[1:5] == ["-m", "dra_sdk.cli.main", "run", "cpu"]
    assert launcher._with_uid == ["--pod-uid={pod_uid}"]
    assert site.kubelet_dir == Path("/k")
