"""`dra-sdk explain`: why does a claim get no devices, or why these?

Schedules the pods and claims of files, or of a running cluster, as kube-scheduler would. It explains one claim, all
claims of a pod, or everything that is not placed: which devices pass which test on which nodes, and what the others
have instead. With a what-if flag it explains the cluster after the change. It suggests changes that help, the smallest
first; each one was tried with the allocator. With --watch it follows the running cluster, explains again when the
answer is another one, and ends when all can be allocated. With --make-room it plans the fewest evictions that free
devices for a pod. Exit status: 0 if everything can be allocated or a plan is found, 1 if not, or if the pod of --pod
has a node and does not run there yet, 2 for bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing
from typing import Final

from dra_sdk.cli.arguments import Commands, add_output
from dra_sdk.cli.input import Scenario, add_scenario_flags
from dra_sdk.cli.live_cluster import selected
from dra_sdk.cli.outcomes import outcomes
from dra_sdk.cli.output import print_lines, print_notes, print_value
from dra_sdk.cli.progress import phase
from dra_sdk.cli.reports import plan_lines
from dra_sdk.cli.what_if_flags import add_what_if_flags
from dra_sdk.errors import SettingsError
from dra_sdk.tools.scheduling.cluster import SchedulingOutcome
from dra_sdk.tools.scheduling.cluster.eviction_plan import NoRoomError, plan_evictions
from dra_sdk.tools.scheduling.explain import (
    Explainer,
    Explanation,
    PodExplanation,
    format_explanations,
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
    subject.add_argument(
        "--make-room",
        metavar="[NAMESPACE/]POD",
        help="plan the fewest evictions, of pods of any priority, that free devices for this pod",
    )
    parser.add_argument("--on", metavar="NODE", help="look only at this node")
    add_output(parser, ("text", "yaml", "json"), _OUTPUT)
    parser.set_defaults(run=run, waves=None)


def run(arguments: argparse.Namespace) -> int:
    """Explain and print; status 1 if something cannot be allocated."""
    last: list[Explanation | PodExplanation] | None = None
    satisfiable = False
    with closing(outcomes(arguments)) as every:
        for scenario, _, outcome, _ in every:
            if arguments.make_room:
                return _make_room(scenario, outcome, arguments)
            explanations = []
            with phase("explaining") as explained:
                for explanation in _explanations(scenario, outcome, arguments):
                    explanations.append(explanation)
                    explained.count(len(explanations))
            if last is None:
                print_notes(scenario.notes)
            if explanations != last:
                _print(explanations, arguments.output)
            last, satisfiable = explanations, all(explanation.satisfiable for explanation in explanations)
            if satisfiable:
                break
    return 0 if satisfiable else 1


def _make_room(scenario: Scenario, outcome: SchedulingOutcome, arguments: argparse.Namespace) -> int:
    """Print a plan of evictions; status 1 if there is none. WhatIfError if there is no such pod."""
    print_notes(scenario.notes)
    try:
        with phase("planning evictions"):
            plan = plan_evictions(outcome, scenario.key(arguments.make_room))
    except NoRoomError as error:
        if arguments.output != "text":
            print_value(None, arguments.output)
        print_lines([str(error)], sys.stdout if arguments.output == "text" else sys.stderr)
        return 1
    if arguments.output == "text":
        print_lines(plan_lines(plan))
    else:
        print_value(plan.to_json(), arguments.output)
    return 0


def _explanations(
    scenario: Scenario, outcome: SchedulingOutcome, arguments: argparse.Namespace
) -> Iterator[Explanation | PodExplanation]:
    node: str | None = arguments.on
    if node and node not in outcome.snapshot.nodes_by_name:
        names = ", ".join(outcome.snapshot.nodes_by_name) or "none"
        raise SettingsError(f"there is no node {node}; nodes are: {names}")
    explainer = Explainer(outcome, node)
    if arguments.claim:
        yield explainer.claim(scenario.key(arguments.claim))
    elif arguments.pod:
        yield explainer.pod(scenario.key(arguments.pod))
    else:
        chosen = selected(outcome, arguments)
        yield from (explainer.pod(pod.pod) for pod in chosen.unplaced)
        yield from (explainer.claim(claim.claim) for claim in chosen.unallocated)


def _print(explanations: list[Explanation | PodExplanation], output: str) -> None:
    if output == "text":
        lines = format_explanations(explanations) or "Every pod has a node, and every claim has its devices.\n"
        print_lines(lines.removesuffix("\n").split("\n"))
        sys.stdout.flush()
    else:
        print_value([explanation.to_json() for explanation in explanations], output)
