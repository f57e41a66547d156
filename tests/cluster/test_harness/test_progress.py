"""What people see during a long step."""

from __future__ import annotations

import contextlib
import io
import time

import pytest

from tests.cluster.harness.progress import Progress, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.9, "9.9 s"), (42.4, "42 s"), (60, "1 min 00 s"), (185, "3 min 05 s"), (3725, "1 h 02 min")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


def test_progress_in_a_file_is_a_line_in_each_interval():
    stream = io.StringIO()
    with Progress(stream, interval=0.01).step("building") as step:
        step.detail = "7 packages"
        while stream.getvalue().count("\n") < 2:
            time.sleep(0.01)
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("...... building: ")
    assert lines[0].endswith("7 packages")
    assert lines[-1].startswith("done   building: ")
    assert "\r" not in stream.getvalue()


def test_progress_on_a_terminal_rewrites_one_line():
    stream = io.StringIO()
    stream.isatty = lambda: True
    with contextlib.suppress(ValueError), Progress(stream, interval=0.01).step("building"):
        while "......" not in stream.getvalue():
            time.sleep(0.01)
        raise ValueError
    assert stream.getvalue().count("\n") == 1
    assert stream.getvalue().rsplit("\r\x1b[K", 1)[1].startswith("failed building: ")
