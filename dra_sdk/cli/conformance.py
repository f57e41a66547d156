"""`dra-sdk conformance`: does a DRA driver, in any language, keep its contract?

Checks a driver as a black box: its sockets, its ResourceSlices and its files. The API server is an embedded one over
HTTPS unless a kubeconfig is given; the kit does the work of kubelet, scheduler and container runtime. Exit status: 0
the driver conforms, 1 it does not, 2 it could not be checked.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dra_sdk.cli.arguments import (
    REPEATED,
    Commands,
    Parser,
    add_host_root,
    from_text,
    is_directory,
    opened_host_root,
    positive_seconds,
    whole_number,
)
from dra_sdk.cli.output import print_lines, print_table, write_file
from dra_sdk.errors import SettingsError
from dra_sdk.node.runtime.settings import node_name

if TYPE_CHECKING:
    from dra_sdk.tools.conformance.check import Check, Result
    from dra_sdk.tools.conformance.report import Report, Table
    from dra_sdk.tools.conformance.target import Target

_COMMAND_HELP: Final = (
    "start any driver with this command line, in which {kubeconfig} {kubelet_dir} {registry_dir} {plugins_dir} "
    "{cdi_dir} {node_name} {host_root} {nri_socket} {pod_uid} are replaced; the environment has KUBECONFIG NODE_NAME "
    "POD_UID CDI_ROOT NRI_SOCKET KUBELET_REGISTRAR_DIRECTORY_PATH KUBELET_PLUGINS_DIRECTORY_PATH"
)


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("conformance", help="check any DRA driver against its contract", description=__doc__)
    _add_driver_flags(parser)
    _add_environment_flags(parser)
    parser.add_argument("--level", **REPEATED, metavar="NAME,…", help="only these levels or checks; may be repeated")
    parser.add_argument("--list", action="store_true", help="list the checks and their contracts, and check nothing")
    parser.add_argument("--strict", action="store_true", help="the driver conforms only if no `should` failed either")
    parser.add_argument(
        "--load", type=whole_number(1), default=50, metavar="N", help="claims of the load level (default 50)"
    )
    parser.add_argument(
        "--start-timeout",
        type=positive_seconds,
        default=120.0,
        metavar="SECONDS",
        help="how long a driver may take to register (default 120; the kubelet waits without end)",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="write a JUnit report")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a JSON report, with all evidence")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only failures and the score")
    parser.set_defaults(run=run)


def _add_driver_flags(parser: Parser) -> None:
    driver = parser.add_mutually_exclusive_group()
    driver.add_argument(
        "--driver", default="", metavar="NAME", help="start a driver of this SDK: an installed name, or module:Class"
    )
    driver.add_argument("--command", default="", metavar="LINE", help=_COMMAND_HELP)
    driver.add_argument(
        "--registry", type=Path, metavar="DIR", help="check a running driver, which has its socket in this directory"
    )
    parser.add_argument(
        "--driver-name", default="", metavar="NAME", help="the driver's name, if several are registered"
    )
    parser.add_argument(
        "--nri", action="store_true", help="the driver is an NRI plugin, which connects to {nri_socket}: check that too"
    )
    parser.add_argument("--disruptive", action="store_true", help="with --registry: also checks that disturb the node")


def _add_environment_flags(parser: Parser) -> None:
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="use this API server, not the embedded one")
    parser.add_argument(
        "--node-name",
        default="",
        type=from_text(node_name),
        metavar="NAME",
        help="the driver's node (default: one that is created for the run)",
    )
    parser.add_argument("--cdi-dir", type=Path, metavar="DIR", help="with --registry: CDI specs (default /var/run/cdi)")
    add_host_root(parser)
    parser.add_argument(
        "--claim", type=Path, metavar="FILE", help="a ResourceClaim and DeviceClass to request devices by"
    )


def run(arguments: argparse.Namespace) -> int:
    """Check and report. SIGTERM stops the run, and the driver with it."""
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    try:
        return _print_checks() if arguments.list else _check(arguments)
    finally:
        signal.signal(signal.SIGTERM, before)


def _print_checks() -> int:
    from dra_sdk.tools.conformance.checks import CHECKS  # noqa: PLC0415 (imports gRPC)

    rows = [(check.id, check.level, check.severity.value, check.contract) for check in CHECKS]
    print_table(("CHECK", "LEVEL", "", "CONTRACT"), rows)
    return 0


def _check(arguments: argparse.Namespace) -> int:
    _check_flags(arguments)
    from dra_sdk.tools.conformance.checks import NRI_LEVELS, select  # noqa: PLC0415 (imports gRPC)
    from dra_sdk.tools.conformance.report import closing_lines, json_document, junit_document  # noqa: PLC0415 (gRPC)

    checks = select(name for names in arguments.level for name in names.split(",") if name)
    if not arguments.level and not arguments.nri:
        checks = [check for check in checks if check.level not in NRI_LEVELS]
    with opened_host_root(arguments.host_root) as arguments.host_root:
        report = _report(arguments, checks)
    print_lines(closing_lines(report))
    for path, document in ((arguments.junit, junit_document), (arguments.json, json_document)):
        if path:
            write_file(path, document(report))
    return report.exit_status


def _check_flags(arguments: argparse.Namespace) -> None:
    """Raise SettingsError for flags that would be ignored, or fail only after minutes of checks."""
    if not arguments.registry and (arguments.disruptive or arguments.cdi_dir):
        raise SettingsError("--disruptive and --cdi-dir need --registry DIR")
    if arguments.registry and not is_directory(arguments.registry):
        raise SettingsError(f"--registry {arguments.registry} is not a directory; a kubelet creates plugins_registry")
    for path in filter(None, (arguments.junit, arguments.json)):
        if is_directory(path) or not is_directory(path.absolute().parent):
            raise SettingsError(f"cannot write {path}: it must be a file in a directory that exists")


def _report(arguments: argparse.Namespace, checks: Sequence[Check]) -> Report:
    from dra_sdk.tools.conformance.check import run_checks  # noqa: PLC0415 (imports gRPC)
    from dra_sdk.tools.conformance.report import Report, Table  # noqa: PLC0415 (imports gRPC)

    target = _target(arguments)
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    with target.open() as opened:
        server = opened.api.version() + (" (embedded)" if opened.environment.requests else "")
        print_result = (lambda _result: None) if arguments.quiet else partial(_print_rows, Table())
        results = run_checks(opened, checks, print_result)
        name = opened.driver.name
    seconds = time.monotonic() - began
    return Report(name, target.description, server, started, seconds, results, strict=arguments.strict)


def _target(arguments: argparse.Namespace) -> Target:
    from dra_sdk.tools.conformance.target import Target  # noqa: PLC0415 (imports gRPC)
    from dra_sdk.tools.conformance.timeouts import Timeouts  # noqa: PLC0415 (imports gRPC)

    names = ("driver", "command", "registry", "driver_name", "kubeconfig", "node_name", "cdi_dir", "host_root", "claim")
    given: dict[str, Any] = {name: getattr(arguments, name) for name in (*names, "disruptive", "nri")}
    return Target(**given, max_claims=arguments.load, timeouts=Timeouts(start=arguments.start_timeout))


def _print_rows(table: Table, result: Result) -> None:
    print_lines(table.rows(result))
    sys.stdout.flush()
