"""`dra-sdk explain`: why does a claim get no devices, or why these?

Schedules the pods and claims of files, or of a running cluster, as kube-scheduler would. It explains one claim, all
claims of a pod, or everything that is not placed: which devices pass which test on which nodes, and what the others
have instead. With a what-if flag it explains the cluster after the change. It suggests changes that help, the smallest
first; each one was tried with the allocator. With --watch it follows the running cluster, explains again when the
answer is another one, and ends when all can be allocated. Exit status: 0 if everything can be allocated, 1 if not, 2
for bad input.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from dra_sdk.cli.arguments import Commands
from dra_sdk.cli.extras import require_tools
from dra_sdk.cli.live_cluster import selected
from dra_sdk.cli.output import printable, yaml_text
from dra_sdk.cli.scenario import Scenario, add_scenario_flags, print_bad_input, scenarios
from dra_sdk.cli.what_if import add_what_if_flags, changed_cluster
from dra_sdk.errors import DraError, SettingsError
from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.explain import (
    Explanation,
    PodExplanation,
    explain_outcome,
    explain_pod_outcome,
    format_explanation,
)

_OUTPUT: Final = "text: in sentences (default); yaml, json: everything, for every node"


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "explain", help="why a claim gets no devices, and what would help", description=__doc__
    )
    add_scenario_flags(parser)
    add_what_if_flags(parser)
    subject = parser.add_mutually_exclusive_group()
    subject.add_argument("--claim", metavar="[NAMESPACE/]NAME", help="explain this claim")
    subject.add_argument("--pod", metavar="[NAMESPACE/]NAME", help="explain all claims of this pod")
    parser.add_argument("--on", metavar="NODE", help="look only at this node")
    parser.add_argument("-o", "--output", choices=("text", "yaml", "json"), default="text", help=_OUTPUT)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Explain and print; status 1 if something cannot be allocated."""
    require_tools("explain")
    last: list[Explanation | PodExplanation] | None = None
    satisfiable = False
    try:
        with closing(scenarios(arguments)) as every:
            for scenario in every:
                found = list(_explanations(scenario, arguments))
                for note in scenario.notes if last is None else ():
                    print(printable(f"note: {note}"), file=sys.stderr)
                if found != last:
                    _print(found, arguments.output)
                last, satisfiable = found, all(each.satisfiable for each in found)
                if satisfiable:
                    break
    except DraError as error:
        return print_bad_input(error)
    return 0 if satisfiable else 1


def _explanations(scenario: Scenario, arguments: argparse.Namespace) -> Iterator[Explanation | PodExplanation]:
    node: str | None = arguments.on
    snapshot = scenario.snapshot
    if node and node not in snapshot.nodes_by_name:
        names = ", ".join(snapshot.nodes_by_name) or "none"
        raise SettingsError(f"there is no node {node}; nodes are: {names}")
    outcome = schedule(snapshot)
    if (changed := changed_cluster(outcome.snapshot, snapshot, arguments)) is not None:
        outcome = schedule(changed)
    if arguments.claim:
        yield explain_outcome(outcome, scenario.key(arguments.claim), node)
    elif arguments.pod:
        yield explain_pod_outcome(outcome, scenario.key(arguments.pod), node)
    else:
        chosen = selected(outcome, arguments)
        for pod in chosen.unplaced:
            yield explain_pod_outcome(outcome, pod.pod, node)
        for claim in chosen.unallocated:
            yield explain_outcome(outcome, claim.claim, node)


def _print(found: list[Explanation | PodExplanation], output: str) -> None:
    if output == "text":
        lines = "\n".join(map(format_explanation, found)) or "Every pod has a node, and every claim has its devices.\n"
        for line in lines.splitlines():
            print(printable(line))
        sys.stdout.flush()
    elif output == "json":
        print(json.dumps([each.to_json() for each in found], indent=2))
    else:
        print(yaml_text([[each.to_json() for each in found]]), end="")
