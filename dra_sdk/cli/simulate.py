"""`dra-sdk simulate`: who gets which devices on which node?

Schedules the pods and claims of files, or of a running cluster, as kube-scheduler would, without changing anything.
With --add-node, --taint or --drain it first schedules, then changes the cluster, schedules again and says what is
different. Exit status: 0 if everything has its place, 1 if something has not, 2 for bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from dra_sdk.cli.changes import add_what_if_flags, advice, apply, changes
from dra_sdk.cli.files import printable
from dra_sdk.cli.picture import write_picture
from dra_sdk.cli.placements import HEADINGS, rows, summary
from dra_sdk.cli.scenario import Scenario, add_scenario_flags, read_scenario, report
from dra_sdk.cli.sentences import yaml_text
from dra_sdk.cli.table import print_table
from dra_sdk.errors import DraError
from dra_sdk.tools.scheduling.cluster import SchedulingOutcome, schedule


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("simulate", help="who gets which devices on which node", description=__doc__)
    add_scenario_flags(parser)
    add_what_if_flags(parser)
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "yaml", "json"),
        default="table",
        help="table: who has what (default); yaml, json: the claims, allocated",
    )
    parser.add_argument("--picture", type=Path, metavar="FILE.html", help="also draw nodes, devices and claims")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Schedule, change, schedule again, print."""
    try:
        scenario = read_scenario(arguments)
        before = schedule(scenario.snapshot)
        changed = apply(before.snapshot, scenario.snapshot, arguments)
        after = before if changed is None else schedule(changed)
        if arguments.picture:
            write_picture(after, arguments.picture)
    except DraError as error:
        return report(error)
    _print(scenario, before, after, arguments)
    return 0 if after.complete else 1


def _print(
    scenario: Scenario, before: SchedulingOutcome, after: SchedulingOutcome, arguments: argparse.Namespace
) -> None:
    """The answer on stdout, all else on stderr; but what changed is part of the answer, unless that is objects."""
    for note in (*scenario.notes, *after.notes):
        print(printable(f"note: {note}"), file=sys.stderr)
    other = sys.stderr
    if arguments.output == "json":
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(after.snapshot.claims)}, indent=2))
    elif arguments.output == "yaml":
        print(yaml_text(after.snapshot.claims), end="")
    else:
        other = sys.stdout
        print_table(HEADINGS, [[printable(cell) for cell in row] for row in rows(after)])
    lines = [] if after is before else changes(before, after)
    lines += advice(after, scenario.snapshot)
    for line in ["", *lines] if lines else []:
        print(printable(line), file=other)
    print(printable(summary(after)), file=sys.stderr)
