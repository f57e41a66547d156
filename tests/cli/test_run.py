"""What `dra-sdk run` does before the driver serves; tests/faults has the rest."""

from __future__ import annotations

import argparse
import signal
import sys

import pytest

from dra_sdk.cli import run


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
    assert handlers == [run.exit_at_once] * 2
