"""`dra-sdk run NAME`: run a driver until SIGTERM or SIGINT, or until the container runtime that started it ends.

A flag has precedence over its environment variable (in brackets), the variable over the file of --config, and the file
over the default. Exit status: 0 the driver was stopped, 1 it was stopped while a hook still ran, 2 it could not start.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import logging
import os
import threading
from collections.abc import Collection
from time import monotonic
from typing import Final

from dra_sdk.cli.arguments import Commands, add_driver, check_host_root
from dra_sdk.cli.stop_request import StopRequest, exit_at_once, on_signal
from dra_sdk.errors import SettingsError
from dra_sdk.loader import load_driver
from dra_sdk.node.logs import set_up_logging
from dra_sdk.node.runtime.settings import add_flags, read_settings

log = logging.getLogger(__name__)
JOIN_SECONDS: Final = 1.0
"""For threads that are about to end."""
_M_MMAP_THRESHOLD: Final = -3  # malloc.h
_LARGE_BLOCK: Final = 128 * 1024
"""Bytes; glibc's own default."""


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("run", help="run a driver on this node", description=__doc__, add_help=False)
    add_driver(parser)
    add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run until a signal, then stop; status 1 if a hook hangs. A second signal ends the process at once.

    A signal before the driver serves ends it at once as well: the next start repairs what is incomplete.
    """
    _map_large_blocks()
    on_signal(exit_at_once)  # before slow imports: the first process of a container ignores signals without a handler
    from dra_sdk.node.runtime.process import DriverProcess  # noqa: PLC0415 (imports gRPC)

    settings = read_settings(arguments)
    if settings.host_root.is_file():
        raise SettingsError(
            f"--host-root {settings.host_root} is a file: `run` acts on a node and reads no archive; `demo` reads one"
        )
    check_host_root(settings.host_root)
    set_up_logging(settings.log_level, settings.log_format)
    others = set(threading.enumerate())
    driver = load_driver(arguments.driver, settings.driver, settings.kubelet_dir)
    gc.freeze()  # what was imported is never garbage; a full collection would stop all threads to examine it
    with (
        StopRequest() as request,
        DriverProcess(driver, settings, serves=request.catch_signals, ended=request.put) as process,
    ):
        log.info("%s: stopping", request.wait())
    busy = _running([thread for thread in threading.enumerate() if thread not in others and not thread.daemon])
    if process.is_busy:
        busy.append("a call of the kubelet")
    if busy:  # the interpreter would wait for them
        log.error("ending although still busy: %s; the next start continues from the state files", ", ".join(busy))
        logging.shutdown()
        os._exit(1)
    return 0


def _map_large_blocks() -> None:
    """Let each large block of memory be a mapping of its own, which returns to the kernel as soon as it is freed.

    glibc ends this by itself when the first such block is freed, and keeps holes in its heaps from then on: one for
    each thread in which CPython has rebuilt its table of interned strings, 8 MiB after 10 000 claims.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # other C libraries have no such function
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK)


def _running(threads: Collection[threading.Thread]) -> list[str]:
    """Return the names of the threads that still run after JOIN_SECONDS."""
    deadline = monotonic() + JOIN_SECONDS
    for thread in threads:
        thread.join(max(0.0, deadline - monotonic()))
    return [thread.name for thread in threads if thread.is_alive()]
