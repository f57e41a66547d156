"""`dra-sdk webhook`: it serves until a signal, and says what is wrong with its arguments."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.commands import runner
from tests.tools.config_webhook.test_server import Files


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_the_drivers_that_are_named_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    files = Files(tmp_path)
    words = [
        "webhook",
        "cpu",
        "memory",
        "--address=127.0.0.1:0",
        "--certificate",
        files.certificate,
        "--key",
        files.key,
    ]
    command = [sys.executable, "-m", "dra_sdk.cli.main", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stderr is not None
        assert process.stderr.readline().rstrip().endswith("reviews of configuration for dra.cpu, dra.memory")
        process.send_signal(number)
        assert process.stderr.readline().rstrip().endswith(f"{number.name}: stopping")
        assert process.wait() == 0


def test_what_is_wrong_is_said_in_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run = runner(capsys)
    files = Files(tmp_path)
    given = ("--certificate", str(files.certificate), "--key", str(files.key))
    assert run("webhook").status == 2
    done = run("webhook", "nonesuch", *given)
    assert (done.status, "nonesuch" in done.err) == (2, True)
    done = run("webhook", "cpu", "--certificate", "/absent", "--key", "/absent")
    assert (done.status, "/absent" in done.err) == (2, True)
