"""`dra-sdk run NAME`: run a driver until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import logging
import signal
from threading import Event

from dra_sdk.cli.logs import set_up_logging
from dra_sdk.loader import load_driver
from dra_sdk.runtime.settings import add_flags, read_settings


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("run", help="run a driver on this node", description=__doc__)
    parser.add_argument("driver", help="a name that `dra-sdk drivers` lists, or module:Class")
    add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run until a signal asks to end; a second signal ends at once."""
    from dra_sdk.runtime.process import DriverProcess  # noqa: PLC0415 (gRPC: not for the other commands)

    settings = read_settings(arguments)
    set_up_logging(settings.log_level, settings.log_format)
    ended = Event()

    def end(number: int, _frame: object) -> None:
        if ended.is_set():
            raise SystemExit(128 + number)
        logging.getLogger(__name__).info("%s: stopping", signal.Signals(number).name)
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    with DriverProcess(load_driver(arguments.driver), settings):
        ended.wait()
    return 0
