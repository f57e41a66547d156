"""`dra-sdk run NAME`: run a driver until SIGTERM or SIGINT.

A flag wins over its environment variable (in brackets), that over the file of --config, that over the default. Exit
status: 0 ended as asked, 1 ended while a hook was still at work, 2 could not start.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
from collections.abc import Callable, Collection
from queue import SimpleQueue
from time import monotonic
from types import FrameType

from dra_sdk.cli.files import check_host_root
from dra_sdk.loader import load_driver
from dra_sdk.node.logs import set_up_logging
from dra_sdk.node.runtime.settings import add_flags, read_settings

log = logging.getLogger(__name__)
LAST_SECONDS = 1.0  # for threads that are done, or nearly so


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("run", help="run a driver on this node", description=__doc__)
    parser.add_argument("driver", help="a name that `dra-sdk drivers` lists, or module:Class")
    add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run until a signal asks to end, in good order; status 1 if a hook hangs then. A second signal ends at once.

    So does the first one before the driver serves: all that can be half done by then is put right by any next start.
    """
    _on_signal(_end_at_once)  # before all that takes time: the first process of a container is deaf without
    from dra_sdk.node.runtime.process import DriverProcess  # noqa: PLC0415 (gRPC: not for the other commands)

    settings = read_settings(arguments)
    check_host_root(settings.host_root)
    set_up_logging(settings.log_level, settings.log_format)
    others = set(threading.enumerate())
    asked: SimpleQueue[signal.Signals] = SimpleQueue()  # unlike an Event's, its locks suffer signal handlers

    def end(number: int, _frame: FrameType | None) -> None:
        _on_signal(_end_at_once)
        asked.put(signal.Signals(number))

    with DriverProcess(load_driver(arguments.driver), settings) as process:
        _on_signal(end)
        log.info("%s: stopping", asked.get().name)
    left = _left([each for each in threading.enumerate() if each not in others and not each.daemon])
    if process.is_busy:
        left.append("a call of the kubelet")
    if left:  # the interpreter would wait for them
        log.error("ending while still at work: %s; the next start goes on from the state files", ", ".join(left))
        logging.shutdown()
        os._exit(1)
    return 0


def _left(threads: Collection[threading.Thread]) -> list[str]:
    """The names of threads that do not end soon."""
    deadline = monotonic() + LAST_SECONDS
    for each in threads:
        each.join(max(0.0, deadline - monotonic()))
    return [each.name for each in threads if each.is_alive()]


def _on_signal(handler: Callable[[int, FrameType | None], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handler)


def _end_at_once(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)
