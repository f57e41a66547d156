"""What `dra-sdk run` does before the driver serves, and its help; tests/faults has the rest."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dra_sdk.cli import run
from dra_sdk.cli.main import main
from dra_sdk.cli.stop_request import exit_at_once
from dra_sdk.errors import DraError, SettingsError
from dra_sdk.loader import Driver
from dra_sdk.model.driver import Node
from dra_sdk.node.runtime import process
from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.nri import NriRuntime
from tests.testing.cores import NAME


def test_signal_handlers_are_set_before_anything_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process of a container ignores signals without a handler: its pod would use all of its grace period."""
    handlers = []

    class Finder:
        """Finds the first slow import."""

        def find_spec(self, name: str, *_: object) -> None:
            if name == "dra_sdk.node.runtime.process":
                handlers.extend(signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT))
                raise ImportError(name)

    monkeypatch.delitem(sys.modules, "dra_sdk.node.runtime.process", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(ImportError):
            run.run(argparse.Namespace(driver="none"))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert handlers == [exit_at_once] * 2


def test_collections_of_garbage_pass_over_what_was_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A full collection stops all threads, and there are tens of thousands of these objects."""
    passed_over = []

    class NoProcess:
        def __init__(self, *_: object, **__: object) -> None:
            passed_over.append(gc.get_freeze_count())
            raise SettingsError("no process")

    monkeypatch.setattr(process, "DriverProcess", NoProcess)
    monkeypatch.setattr(run, "set_up_logging", lambda *_: None)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        status = main(["run", "tests.cli.cards:Cards", "--node-name", "n", "--kubelet-dir", str(tmp_path)])
    finally:
        gc.unfreeze()
        for number, handler in before.items():
            signal.signal(number, handler)
    assert status == 2
    assert passed_over[0] > 10_000


def test_the_settings_of_the_driver_follow_the_directory_of_the_kubelet(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refusals = []

    class NoProcess:
        def __init__(self, driver: Driver, *_: object, **__: object) -> None:
            try:
                driver.discover(Node("n", tmp_path))
            except DraError as error:
                refusals.append(str(error))
            raise SettingsError("no process")

    (tmp_path / "data").mkdir()
    (tmp_path / "data/cpu_manager_state").write_text('{"policyName": "static"}')
    monkeypatch.setattr(process, "DriverProcess", NoProcess)
    monkeypatch.setattr(run, "set_up_logging", lambda *_: None)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        assert main(["run", "cpu", "--kubelet-dir", "/data", "--host-root", str(tmp_path), "--node-name", "n"]) == 2
    finally:
        gc.unfreeze()
        for number, handler in before.items():
            signal.signal(number, handler)
    assert "cpuManagerPolicy static (/data/cpu_manager_state)" in refusals[0]


LARGE_BLOCKS = """
import ctypes, sys
from dra_sdk.cli.main import main
from dra_sdk.cli.stop_request import exit_at_once

class mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in "arena ordblks smblks mapped a b c d e f".split()]

malloc = ctypes.CDLL(None)
malloc.mallinfo2.restype = mallinfo2
if sys.argv[1:]:
    main(["run", *sys.argv[1:]])
bytearray(2 << 20)
mapped = malloc.mallinfo2().mapped
block = bytearray(2 << 20)
print(malloc.mallinfo2().mapped - mapped)
"""


@pytest.mark.parametrize(("arguments", "mapped"), [(["tests.cli.cards:NoSuchDriver"], "1"), ([], "0")])
def test_a_large_block_of_memory_always_goes_back_to_the_kernel(arguments: list[str], mapped: str) -> None:
    """Without the command, glibc keeps the second block in its heap: `mallinfo2` counts the blocks that are mapped."""
    command = [sys.executable, "-c", LARGE_BLOCKS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG, check=True)
    assert done.stdout == f"{mapped}\n"


def test_a_process_of_a_container_runtime_ends_in_order_with_it(tmp_path: Path) -> None:
    with (
        EmbeddedCluster() as cluster,
        NriRuntime(tmp_path / "nri.sock", registration_timeout=LONG, request_timeout=LONG) as runtime,
    ):
        command = [sys.executable, "-m", "dra_sdk.cli.main", "run", "tests.testing.cores:CoreDriver"]
        command += ["--node-name", cluster.node_name, "--kubeconfig", str(cluster.kubeconfig)]
        command += ["--kubelet-dir", str(cluster.registry_dir.parent), "--cdi-dir", str(cluster.cdi_dir)]
        with runtime.launch() as inherited:
            environment = {**os.environ, "NRI_PLUGIN_SOCKET": str(inherited.fileno()), "NRI_PLUGIN_IDX": "07"}
            started = subprocess.Popen(command, env=environment, pass_fds=[inherited.fileno()], stderr=subprocess.PIPE)
        with started:
            try:
                assert runtime.wait_plugins(1, LONG)
                cluster.kubelet.wait_for_driver(NAME)
                assert runtime.plugins == [f"07-{NAME}"]
                runtime.stop()
                _, log = started.communicate(timeout=LONG)
            finally:
                started.kill()
    assert b"the container runtime has ended the connection that it started this process with: stopping" in log
    assert started.returncode == 0


@pytest.mark.parametrize("command", ["run", "discover"])
def test_help_after_a_driver_shows_its_settings(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("DRA_GPU_MPS", "neither")  # help is for those who have made a mistake, too
    with pytest.raises(SystemExit) as stopped:
        main([command, "gpu", "--help"])
    text = capsys.readouterr().out
    assert stopped.value.code == 0
    assert text.startswith(f"usage: dra-sdk {command} ")
    flags, _, settings = text.partition("\nsettings of driver gpu, as environment variables or in section `driver` ")
    assert "--host-root DIR" in flags
    assert (
        """
  DRA_GPU_VFIO_SECONDS, vfioSeconds: seconds, at most 40 (default 30)
                        how long to wait until nobody uses a GPU that is
                        passed through
"""
        in settings
    )
    assert "DRA_GPU_CDI_HOOK, cdiHook: absolute path (not set)" in settings


def test_help_without_a_driver_or_for_one_without_settings_shows_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for words in (["run", "--help"], ["run", "tests.cli.cards:Cards", "-h"]):
        with pytest.raises(SystemExit) as stopped:
            main(words)
        assert stopped.value.code == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]
    assert "settings of driver" not in shown[0]


def test_help_for_an_unknown_driver_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["run", "gpuu", "--help"])
    assert stopped.value.code == 2
    assert "dra-sdk run: unknown driver 'gpuu'; installed drivers: cpu, device-plugin, gpu" in capsys.readouterr().err
