"""`dra-sdk webhook`: it serves until a signal, and says what is wrong with its arguments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.commands import runner
from tests.tools.config_webhook.test_server import Files


@contextmanager
def serving(files: Files, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The command, once it serves."""
    given = ["--address=127.0.0.1:0", f"--certificate={files.certificate}", f"--key={files.key}", *words]
    command = [sys.executable, "-m", "dra_sdk.cli.main", "webhook", "cpu", "memory", *given]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stderr is not None
        assert process.stderr.readline().rstrip().endswith("reviews of configuration for dra.cpu, dra.memory")
        yield process


def stop(process: subprocess.Popen[str], number: signal.Signals) -> None:
    process.send_signal(number)
    assert process.stderr is not None
    assert process.stderr.readline().rstrip().endswith(f"{number.name}: stopping")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_the_drivers_that_are_named_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with serving(Files(tmp_path)) as process:
        stop(process, number)
        assert process.wait() == 0


def test_it_goes_on_for_a_while_after_a_signal_and_a_second_one_ends_it(tmp_path: Path) -> None:
    with serving(Files(tmp_path), "--shutdown-delay=600") as process:
        stop(process, signal.SIGTERM)
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM


def test_what_is_wrong_is_said_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = runner(capsys)
    files = Files(tmp_path)
    given = ("--certificate", str(files.certificate), "--key", str(files.key))
    assert run("webhook").status == 2
    done = run("webhook", "nonesuch", *given)
    assert (done.status, "nonesuch" in done.err) == (2, True)
    done = run("webhook", "cpu", "--certificate", "/absent", "--key", "/absent")
    assert (done.status, "/absent" in done.err) == (2, True)
