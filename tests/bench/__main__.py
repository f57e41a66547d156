"""`python -m tests.bench`: start a real API server and both drivers, measure them in turn, print the comparison."""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from dra_sdk.errors import DraError
from tests.bench.calls import AT_ONCE, Side, measure_bursts, measure_calls
from tests.bench.claims import create_claims, create_node
from tests.bench.contestants import Contestant, go_side, python_side
from tests.bench.control_plane import ControlPlane, control_plane
from tests.bench.godriver_build import ensure_godriver
from tests.bench.idle import rest
from tests.bench.machine import describe_machine, describe_versions, file_system
from tests.bench.node import Node, nodes
from tests.bench.publishing import Publication, publish
from tests.bench.report import Report
from tests.cluster.harness.audit import AuditLog
from tests.cluster.harness.cache import DEFAULT_VERSION, Cache
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.progress import Progress

USERS = ("bench-python", "bench-go")
_MEMORY = Path("/dev/shm")
_DEVICES = 100


@dataclass(frozen=True)
class Plan:
    """How much is measured: starts per number of devices, bursts, blocks of rounds of calls, seconds at most."""

    starts: dict[int, int]
    bursts: int
    blocks: int
    rounds: int
    seconds: float
    idle: float
    held: tuple[int, ...] = (0, 90)


FULL = Plan({1: 7, 100: 7, 5000: 7}, bursts=21, blocks=20, rounds=50, seconds=5.0, idle=30.0)
QUICK = Plan({1: 2, 100: 2, 5000: 1}, bursts=3, blocks=4, rounds=25, seconds=3.0, idle=5.0)
_BURST = 90


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark; exit status 1 for an error that was explained."""
    parser = argparse.ArgumentParser("python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smoke run of about a minute")
    parser.add_argument("-o", "--output", type=Path, help="also write the result as JSON")
    parser.add_argument("--version", default=DEFAULT_VERSION, help="Kubernetes release of the API server")
    parser.add_argument(
        "--go-write-ahead", action="store_true", help="Go writes its checkpoint before the CDI spec too"
    )
    parser.add_argument("--state-dir", type=Path, help="where the drivers keep their state (default: $TMPDIR)")
    parser.add_argument("--trace", action="store_true", help="also show where the time of our calls goes")
    parser.add_argument("--seed", type=int, default=1, help="of the order in which the drivers are called")
    chosen = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        report = _run(chosen, QUICK if chosen.quick else FULL)
    except (HarnessError, DraError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(report.text())
    if chosen.output:
        chosen.output.write_text(json.dumps(report.json(), indent=2) + "\n")
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run(chosen: argparse.Namespace, plan: Plan) -> Report:
    progress, draw = Progress(), random.Random(chosen.seed)
    binary = ensure_godriver(Cache.from_env(), progress)
    with ExitStack() as stack:
        # Short, because socket paths end at 107 bytes.
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dra-bench-", dir=chosen.state_dir)))
        memory = _MEMORY if file_system(_MEMORY) == "tmpfs" else root
        cdi = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dra-bench-", dir=memory)))
        machine = describe_machine(root, cdi)
        plane = stack.enter_context(control_plane(root, chosen.version, list(USERS), progress))
        create_node(plane.client)
        kubeconfigs = plane.kubeconfigs
        trace = root / "trace.txt" if chosen.trace else None
        ours = python_side(root, cdi, kubeconfigs[USERS[0]], USERS[0], trace=trace)
        theirs = go_side(root, cdi, kubeconfigs[USERS[1]], USERS[1], binary, write_ahead=chosen.go_write_ahead)
        kubelets = stack.enter_context(nodes((ours, theirs)))
        report = Report(machine, describe_versions(plane.version, binary), (ours.label, theirs.label))
        bench = _Bench(plane, ((ours, kubelets[0]), (theirs, kubelets[1])), progress, draw)
        bench.measure(plan, report)
        if trace:
            report.trace = trace.read_text()
    return report


class _Bench:
    """The measurements, in order."""

    def __init__(
        self,
        plane: ControlPlane,
        sides: tuple[tuple[Contestant, Node], tuple[Contestant, Node]],
        progress: Progress,
        draw: random.Random,
    ) -> None:
        self._plane, self._sides, self._progress, self._draw = plane, sides, progress, draw
        self._audit = AuditLog(plane.audit_log)

    def measure(self, plan: Plan, report: Report) -> None:
        """Everything of the plan into the report."""
        with self._progress.step("first start of both, not counted"):
            self._publish_both(1)
        for devices, starts in plan.starts.items():
            with self._progress.step(f"starting with {devices} devices, {starts} times each") as step:
                pairs = []
                for turn in range(starts):
                    step.detail = f"{turn} done"
                    pairs.append(self._publish_both(devices))
            report.add_publications(devices, pairs)
        with self._both_running() as load:
            with self._progress.step(f"{plan.idle:g} seconds of rest"):
                report.add_idleness(rest([side.running for side in load], self._audit, plan.idle))
            with self._progress.step(f"{plan.blocks * plan.rounds} rounds of calls, {plan.held} claims held by turns"):
                times = measure_calls(
                    load, plan.held, blocks=plan.blocks, rounds=plan.rounds, seconds=plan.seconds, draw=self._draw
                )
            report.add_calls(times)
            with self._progress.step(f"{plan.bursts} bursts of {_BURST} claims"):
                report.add_bursts(_BURST, AT_ONCE, measure_bursts(load, _BURST, plan.bursts, self._draw))

    def _publish_both(self, devices: int) -> tuple[Publication, Publication]:
        found: dict[int, Publication] = {}
        for index in self._draw.sample((0, 1), 2):
            contestant, node = self._sides[index]
            found[index] = publish(self._plane.client, contestant, node, self._audit, devices)
        return found[0], found[1]

    @contextmanager
    def _both_running(self) -> Iterator[tuple[Side, Side]]:
        with ExitStack() as stack:
            ours, theirs = (self._side(contestant, node, stack) for contestant, node in self._sides)
            yield ours, theirs
            for side in (ours, theirs):
                side.running.stop()

    def _side(self, contestant: Contestant, node: Node, stack: ExitStack) -> Side:
        claims = create_claims(self._plane.client, contestant, _DEVICES)
        running = contestant.start(_DEVICES)
        stack.callback(running.kill)
        node.wait_registered(running)
        return Side(running, node, claims)


if __name__ == "__main__":
    sys.exit(main())
