"""`python -m tests.bench.matching`: both allocators on the same objects, in turn; prints seconds, ratio and growth."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from tests.bench.godriver_build import ensure_gomatch
from tests.bench.machine import processor
from tests.bench.matching.world import PER_NODE, world
from tests.cluster.harness.cache import Cache
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.progress import Progress

JSON = dict[str, Any]

#: Nodes and claims.
SIZES: Final = ((100, 100), (300, 300), (1000, 1000), (5000, 1000))
_CHECKOUT: Final = Path(__file__).parents[3]
_CAPTION: Final = """\
Median of {rounds}. For each claim, nodes are tried in the same order until it fits, one after the other in one thread;
`tries` counts them. Go makes an allocator for each claim, as the scheduler does for each pod, and it gathers the pools
of a node in each try; ours keeps its allocator, and what it knows of a node, for all claims. Reading the objects is not
counted. Both chose the same devices for all claims."""
_HEAD: Final = (
    f"{'devices':>8} {'nodes':>6} {'claims':>7} {'tries':>8} {'ours, s':>9} {'Go, s':>9} {'ratio':>7}   growth"
)


@dataclass
class Size:
    """Measurements of one size, in seconds, in the order in which they were made."""

    nodes: int
    claims: int
    tries: int = 0
    ours: list[float] = field(default_factory=list)
    go: list[float] = field(default_factory=list)

    def row(self, before: Size | None) -> str:
        """A line of the table."""
        ours, go = median(self.ours), median(self.go)
        growth = f"ours x{ours / median(before.ours):.1f}, Go x{go / median(before.go):.1f}" if before else ""
        counts = f"{self.nodes * PER_NODE:>8} {self.nodes:>6} {self.claims:>7} {self.tries:>8}"
        return f"{counts} {ours:>9.3f} {go:>9.3f} {ours / go:>7.2f}   {growth}"


def main(arguments: list[str] | None = None) -> int:
    """Measure and print; 1 where the two chose different devices, or one could not be run."""
    parser = argparse.ArgumentParser("python -m tests.bench.matching", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (default 3)")
    parser.add_argument("--seed", type=int, default=1, help="of the objects")
    chosen = parser.parse_args(arguments)
    try:
        binary = ensure_gomatch(Cache.from_env(), Progress())
        sizes = [_measured(nodes, claims, chosen, binary) for nodes, claims in SIZES]
    except HarnessError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(f"{processor()}\n\n{_HEAD}")
    for index, size in enumerate(sizes):
        print(size.row(sizes[index - 1] if index else None))
    print(f"\n{_CAPTION.format(rounds=chosen.rounds)}")
    return 0


def _measured(nodes: int, claims: int, chosen: argparse.Namespace, binary: Path) -> Size:
    size = Size(nodes, claims)
    with tempfile.TemporaryDirectory(prefix="dra-match-") as folder:
        path = Path(folder) / "world.json"
        path.write_text(json.dumps(world(nodes, claims, chosen.seed)))
        commands = ([sys.executable, "-m", "tests.bench.matching.ours", str(path)], [str(binary), f"--world={path}"])
        for turn in range(chosen.rounds):
            order = (0, 1) if turn % 2 == 0 else (1, 0)
            reports = {side: _run(commands[side]) for side in order}
            _compare(reports[0]["outcomes"], reports[1]["outcomes"])
            size.tries = _tries(reports[0]["outcomes"], nodes)
            size.ours.append(reports[0]["seconds"])
            size.go.append(reports[1]["seconds"])
    return size


def _run(command: list[str]) -> JSON:
    done = subprocess.run(command, cwd=_CHECKOUT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(f"{command[0]} failed: {done.stderr.strip()[-2000:]}")
    report: JSON = json.loads(done.stdout)
    return report


def _tries(outcomes: list[JSON], nodes: int) -> int:
    """How many nodes were tried for all claims; the names of nodes end in their place."""
    return sum(int(each["node"].rpartition("-")[2]) + 1 if each["node"] else nodes for each in outcomes)


def _compare(ours: list[JSON], go: list[JSON]) -> None:
    """HarnessError where a claim got another node, or another allocation."""
    for index, (left, right) in enumerate(zip(ours, go, strict=True)):
        if left != right:
            raise HarnessError(f"claim {index}: ours chose {json.dumps(left)}, Go chose {json.dumps(right)}")
    if not any(each["node"] for each in ours):
        raise HarnessError("no claim fitted anywhere")


if __name__ == "__main__":
    sys.exit(main())
