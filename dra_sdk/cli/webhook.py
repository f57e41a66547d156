"""`dra-sdk webhook [DRIVER…]`: a validating admission webhook that refuses wrong opaque configuration.

It checks ResourceClaims, ResourceClaimTemplates and DeviceClasses with the drivers' own classes, and names every wrong
field in one answer. Entries of other drivers are let through unread. It needs no rights in the cluster, no hardware and
no root. `dra-sdk manifests --set webhook.create=true`, or the chart, installs it; docs/install.md describes it. Exit
status: 0 it was stopped, 2 it could not start.
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from dra_sdk.cli.arguments import Commands, positive_seconds
from dra_sdk.cli.hook_calls import load_driver
from dra_sdk.cli.stop_request import StopRequest
from dra_sdk.errors import SettingsError
from dra_sdk.loader import iter_drivers
from dra_sdk.node.logs import set_up_logging

log = logging.getLogger(__name__)


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("webhook", help="refuse claims with wrong configuration", description=__doc__)
    parser.add_argument(
        "drivers",
        nargs="*",
        metavar="DRIVER",
        help="a name that `dra-sdk drivers` lists, or module:Class (default: all installed drivers)",
    )
    parser.add_argument(
        "--address", default=":8443", metavar="HOST:PORT", help="where it listens (default :8443, on all addresses)"
    )
    parser.add_argument(
        "--certificate", type=Path, required=True, metavar="FILE", help="PEM file with the certificate; may change"
    )
    parser.add_argument("--key", type=Path, required=True, metavar="FILE", help="PEM file with its key; may change")
    parser.add_argument(
        "--shutdown-delay",
        type=positive_seconds,
        default=0.0,
        metavar="SECONDS",
        help="how long it goes on after a signal, while the API server turns to other pods (default: not at all)",
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="how lines on stderr are written (default text)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT, and a little longer; a second signal ends the process."""
    from dra_sdk.tools.config_webhook import Certificate, ConfigReviewer, WebhookServer  # noqa: PLC0415 (as `run`)

    set_up_logging("info", arguments.log_format)
    names = arguments.drivers or [each.name for each in iter_drivers()]
    reviewer = ConfigReviewer(load_driver(each).info for each in names)
    if not reviewer.drivers:
        raise SettingsError("no driver is installed, so there is nothing to check")
    certificate = Certificate(arguments.certificate, arguments.key)
    with StopRequest() as request:
        request.catch_signals()
        with WebhookServer(arguments.address, certificate, reviewer) as server:
            log.info("port %d: reviews of configuration for %s", server.port, ", ".join(reviewer.drivers))
            log.info("%s: stopping", request.wait())
            server.drain(arguments.shutdown_delay)
    return 0
