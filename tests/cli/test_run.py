"""What `dra-sdk run` does before the driver serves; the rest is seen from outside, in tests/faults."""

from __future__ import annotations

import argparse
import signal
import sys

import pytest

from dra_sdk.cli import run


def test_signals_are_heard_before_anything_that_takes_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process of a container is deaf without a handler: its pod would take all of its grace to end."""
    heard = []

    class Library:
        """Stands where the first slow import looks."""

        def find_spec(self, name: str, *_: object) -> None:
            if name == "dra_sdk.node.runtime.process":
                heard.extend(signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT))
                raise ImportError(name)

    monkeypatch.delitem(sys.modules, "dra_sdk.node.runtime.process", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Library(), *sys.meta_path])
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        with pytest.raises(ImportError):
            run.run(argparse.Namespace(driver="none"))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert heard == [run._end_at_once] * 2
