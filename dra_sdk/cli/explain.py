"""`dra-sdk explain`: why does a claim get no devices, or why these?

Schedules the pods and claims of files, or of a running cluster, as kube-scheduler would, and tells for a claim, for all
claims of a pod, or for everything that was not placed, which devices pass which test on which nodes and what the others
have instead. Changes that would help are tried with the allocator first, and told of the smallest first. Exit status:
0 if the claim can be allocated, 1 if not, 2 for bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator

from dra_sdk.cli.files import printable
from dra_sdk.cli.scenario import add_scenario_flags, read_scenario, report
from dra_sdk.cli.sentences import yaml_text
from dra_sdk.errors import DraError, SettingsError
from dra_sdk.tools.scheduling.cluster import SchedulingOutcome, Snapshot, schedule
from dra_sdk.tools.scheduling.explain import (
    Explanation,
    PodExplanation,
    explain_outcome,
    explain_pod_outcome,
    format_explanation,
)

_OUTPUT = "text: in sentences (default); yaml, json: all that was found, on every node"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "explain", help="why a claim gets no devices, and what would help", description=__doc__
    )
    add_scenario_flags(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--claim", metavar="[NAMESPACE/]NAME", help="explain this claim")
    which.add_argument("--pod", metavar="[NAMESPACE/]NAME", help="explain all claims of this pod")
    parser.add_argument("--on", metavar="NODE", help="look at this node only")
    parser.add_argument("-o", "--output", choices=("text", "yaml", "json"), default="text", help=_OUTPUT)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Explain and print; status 1 if anything that was asked about cannot be allocated."""
    try:
        scenario = read_scenario(arguments)
        found = list(_explanations(scenario.snapshot, arguments))
    except DraError as error:
        return report(error)
    for note in scenario.notes:
        print(printable(f"note: {note}"), file=sys.stderr)
    _print(found, arguments.output)
    return 0 if all(each.satisfiable for each in found) else 1


def _explanations(snapshot: Snapshot, arguments: argparse.Namespace) -> Iterator[Explanation | PodExplanation]:
    if arguments.on and arguments.on not in snapshot.nodes_by_name:
        names = ", ".join(snapshot.nodes_by_name) or "none"
        raise SettingsError(f"there is no node {arguments.on}; nodes are: {names}")
    outcome = schedule(snapshot)
    if arguments.claim:
        yield explain_outcome(outcome, arguments.claim, arguments.on)
    elif arguments.pod:
        yield explain_pod_outcome(outcome, arguments.pod, arguments.on)
    else:
        yield from _everything(outcome, arguments.on)


def _everything(outcome: SchedulingOutcome, node: str | None) -> Iterator[Explanation | PodExplanation]:
    """What has no place."""
    for pod in outcome.unplaced:
        yield explain_pod_outcome(outcome, pod.pod, node)
    for claim in outcome.unallocated:
        yield explain_outcome(outcome, claim.claim, node)


def _print(found: list[Explanation | PodExplanation], output: str) -> None:
    if output == "text":
        lines = "\n".join(map(format_explanation, found)) or "Every pod has a node, and every claim its devices.\n"
        for line in lines.splitlines():
            print(printable(line))
        return
    objects = [each.to_json() for each in found]
    if output == "json":
        print(json.dumps(objects, indent=2))
    else:
        print(yaml_text([objects]), end="")
