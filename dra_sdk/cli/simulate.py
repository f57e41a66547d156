"""`dra-sdk simulate`: which pod and claim gets which devices on which node?

Schedules the pods and claims of files, or of a running cluster, as kube-scheduler would, without changing anything.
With a what-if flag it schedules, changes the cluster, schedules again and prints the differences. With --waves it
drains nodes in waves and prints what moves. With --watch it follows the running cluster and prints what changes, until
everything that --namespace and --selector choose is placed. Exit status: 0 if everything is placed, 1 if something is
not, 2 for bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from dra_sdk.cli.arguments import Commands, add_output
from dra_sdk.cli.input import add_scenario_flags
from dra_sdk.cli.live_cluster import selected
from dra_sdk.cli.outcomes import Outcome, outcomes
from dra_sdk.cli.output import print_lines, print_notes, print_objects, print_table
from dra_sdk.cli.progress import phase
from dra_sdk.cli.reports import (
    advice_lines,
    change_lines,
    device_change_lines,
    fragmentation_lines,
    preemption_lines,
    simulation_json,
    wave_lines,
)
from dra_sdk.cli.what_if_flags import add_wave_flag, add_what_if_flags
from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity
from dra_sdk.texts import counted
from dra_sdk.tools.scheduling.cluster import (
    ClaimOutcome,
    PodPlacement,
    SchedulingOutcome,
    compare_outcomes,
    display_name,
)
from dra_sdk.tools.scheduling.cluster.drain_waves import DrainWave

HEADINGS: Final = ("POD", "NODE", "CLAIM", "REQUEST", "DEVICE")
_OUTPUT: Final = (
    "table: the devices of each pod (default); yaml, json: slices and claims, as for `dra-sdk top`; "
    "json also has, in `simulation`, preemptions, fragmentation and what changes"
)
_NONE: Final = "-"
_NO_POD: Final = "(no pod)"


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("simulate", help="which pod gets which devices on which node", description=__doc__)
    add_scenario_flags(parser)
    add_what_if_flags(parser)
    add_wave_flag(parser)
    add_output(parser, ("table", "yaml", "json"), _OUTPUT)
    parser.add_argument("--picture", type=Path, metavar="FILE.html", help="also draw nodes, devices and claims")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Schedule, change, schedule again, print."""
    last: SchedulingOutcome | None = None
    fits = True
    with closing(outcomes(arguments)) as every:
        for outcome in every:
            if arguments.picture:
                _draw(outcome.after, arguments)
            chosen = selected(outcome.after, arguments)
            if last is None:
                _print(outcome, chosen, arguments)
            else:
                _print_difference(last, chosen, arguments.output)
            last, fits = chosen, all(wave.fits for wave in outcome.waves or ())
            if chosen.complete and fits:
                break
    return 0 if last is not None and last.complete and fits else 1


def _draw(outcome: SchedulingOutcome, arguments: argparse.Namespace) -> None:
    from dra_sdk.cli.picture import driver_pictures, write_picture  # noqa: PLC0415 (imports explain and the picture)

    with phase("drawing"):
        write_picture(outcome, arguments.picture, driver_pictures(arguments, outcome))


def _print_difference(before: SchedulingOutcome, after: SchedulingOutcome, output: str) -> None:
    """Print what a change of the running cluster changes; nothing if that is nothing."""
    if not compare_outcomes(before, after):
        return
    if output != "table":
        _print_objects(before, after, None, output)
    print_lines(change_lines(before, after), sys.stdout if output == "table" else sys.stderr)
    print_lines([_summary(after)], sys.stderr)
    sys.stdout.flush()


def _print(outcome: Outcome, after: SchedulingOutcome, arguments: argparse.Namespace) -> None:
    """Print the answer on stdout and notes on stderr. Changes and advice go with the table, or else with the notes.

    With waves, there is no table, only what moves in each of them.
    """
    scenario, waves = outcome.scenario, outcome.waves
    before = after if outcome.after is outcome.before else selected(outcome.before, arguments)
    print_notes((*scenario.notes, *after.notes))
    stream, separate = sys.stderr, True
    if arguments.output == "table":
        stream, separate = sys.stdout, waves is None
        if waves is None:
            print_table(HEADINGS, placement_rows(after))
    else:
        _print_objects(before, after, waves, arguments.output)
    lines = preemption_lines(after)
    if arguments.override:
        lines += device_change_lines(before.snapshot, after.snapshot)
    lines += wave_lines(waves) if waves is not None else []
    if after is not before:
        lines += change_lines(before, after, "" if waves is None else " in the end")
    with phase("trying more nodes") as kinds:
        lines += advice_lines(after, scenario.snapshot, kinds.count)
    if lines:
        print_lines(["", *lines] if separate else lines, stream)
    print_lines([*fragmentation_lines(after.snapshot), _summary(after)], sys.stderr)
    sys.stdout.flush()


def _print_objects(
    before: SchedulingOutcome, after: SchedulingOutcome, waves: Sequence[DrainWave] | None, output: str
) -> None:
    """Print the slices and the claims, which are all that `dra-sdk top` needs, and in JSON what else is known."""
    more = {"simulation": simulation_json(before, after, waves)} if output == "json" else {}
    print_objects([*after.snapshot.slices, *after.snapshot.claims], output, **more)


# -- the table


def placement_rows(outcome: SchedulingOutcome) -> list[list[str]]:
    """Return a row for each device of each pod, or one for a pod or claim without devices; then claims without a pod.

    Pods that ran before and have no devices are left out.
    """
    used = {claim for pod in outcome.pods for claim in pod.claims}
    rows = [row for pod in outcome.pods for row in _pod_rows(pod, outcome)]
    return rows + [
        [_NO_POD, claim.node or _NONE, *cells]
        for claim in outcome.claims
        if claim.claim not in used
        for cells in _claim_cells(claim, display_name(claim.claim))
    ]


def _pod_rows(pod: PodPlacement, outcome: SchedulingOutcome) -> Iterator[list[str]]:
    name = display_name(pod.pod)
    if pod.node is None:
        yield [name, _NONE, _NONE, _NONE, pod.reason]
        return
    rows = [cells for key in pod.claims for cells in _claim_cells(outcome.claims_by_key[key], key[1])]
    yield from ([name, pod.node, *cells] for cells in rows)
    if pod.scheduled and not rows:
        yield [name, pod.node, _NONE, _NONE, _NONE]


def _claim_cells(claim: ClaimOutcome, name: str) -> Iterator[list[str]]:
    if claim.allocation is None:
        yield [name, _NONE, claim.reason or _NONE]
    elif not claim.results:
        yield [name, _NONE, _NONE]
    for result in claim.results:
        yield [name, result["request"], _device(result)]


def _device(result: JSON) -> str:
    """Return a device of an allocation, with the consumed capacity, admin access and binding conditions."""
    name = f"{result['driver']}/{result['pool']}/{result['device']}"
    consumed = sorted((result.get("consumedCapacity") or {}).items())
    extras = [f"{key}={_shorter(value)}" for key, value in consumed if value != "0"]
    if result.get("adminAccess"):
        extras.append("admin access")
    if result.get("bindingConditions"):
        extras.append(f"after {', '.join(result['bindingConditions'])}")
    return f"{name} ({', '.join(extras)})" if extras else name


def _shorter(amount: str) -> str:
    """Return the amount with a binary or a decimal suffix: the API stores 4G of a capacity in Gi as 3906250Ki."""
    value = Quantity(amount).value
    return min(amount, *(str(Quantity.of(value, binary=binary)) for binary in (True, False)), key=len)


def _summary(outcome: SchedulingOutcome) -> str:
    """Return the last line."""
    nodes = {pod.node for pod in outcome.pods if pod.node is not None} | {
        claim.node for claim in outcome.claims if claim.hypothetical and claim.node is not None
    }
    placed = sum(pod.node is not None for pod in outcome.pods)
    without_pod = [claim for claim in outcome.claims if claim.hypothetical]
    parts = []
    if outcome.pods:
        parts.append(f"{placed} of {counted(len(outcome.pods), 'pod')} placed, on {counted(len(nodes), 'node')}")
    elif not without_pod:
        parts.append("no pods")
    if without_pod:
        allocated = sum(claim.allocation is not None for claim in without_pod)
        parts.append(f"{allocated} of {counted(len(without_pod), 'claim')} would be allocated (tested without a pod)")
    if not outcome.complete:
        parts.append("`dra-sdk explain` says why not all")
    return "; ".join(parts)
