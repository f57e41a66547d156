"""`python -m tests.cluster.differential`: generates random cases, runs them, and keeps those that disagree."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import count, islice
from pathlib import Path

from dra_sdk.wire.profile import ServerProfile
from tests.cluster.differential.case import Case, load, save
from tests.cluster.differential.generate import draw_case
from tests.cluster.differential.generate.draw import FEATURES, NEWER
from tests.cluster.differential.real import real_cluster
from tests.cluster.differential.runner import Result, Runner, nodes
from tests.cluster.harness.cache import DEFAULT_VERSION
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.progress import Progress

KEPT = Path(__file__).parent / "kept"
GATES = {"DRAListTypeAttributes": True, "DRADeviceTaintRules": True}
"""Gates that are on in addition to all beta gates."""
OF_1_37 = (
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
    "DRAFractionalCapacityRange",
    "DRAOptionalNodeOperations",
)
_NEWER = 37


def main(arguments: list[str] | None = None) -> int:
    """Runs the cases; returns 1 if any disagrees."""
    parser = argparse.ArgumentParser("python -m tests.cluster.differential", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="how many to draw (default 1000)")
    parser.add_argument("--seed", default=str(time.time_ns()), help="of the cases")
    parser.add_argument("--only", type=int, nargs="*", help="only these numbers of the seed")
    parser.add_argument("--about", nargs="*", default=[], metavar="FEATURE", help="only cases about all of these")
    parser.add_argument("--version", default=DEFAULT_VERSION, help="Kubernetes release")
    parser.add_argument("--off", nargs="*", default=[], metavar="GATE", help="feature gates to switch off")
    parser.add_argument("--keep", type=Path, help="write cases that disagree into this folder")
    parser.add_argument("files", type=Path, nargs="*", help="run these cases instead (default: the kept ones first)")
    chosen = parser.parse_args(arguments)
    known = {**FEATURES, **NEWER}
    if unknown := set(chosen.about) - known.keys():
        parser.error(f"--about: no feature {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    gates = {**gates_of(chosen.version), **dict.fromkeys(chosen.off, False)}
    profile = profile_of(chosen.version, gates)
    print(f"seed {chosen.seed}, Kubernetes {chosen.version}", flush=True)
    try:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="diff-")))
            real = stack.enter_context(real_cluster(folder, chosen.version, gates, Progress(), nodes()))
            started = time.monotonic()
            summary = Runner(real, profile).run(_cases(chosen), lambda result: _tell(result, chosen.keep))
        print(f"{summary.text()}; {time.monotonic() - started:.0f} s")
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 1 if summary.failed else 0


def gates_of(version: str) -> dict[str, bool]:
    """Returns the gates to turn on in addition to all beta gates: every feature of DRA in a release."""
    return {**GATES, **dict.fromkeys(OF_1_37 if is_newer(version) else (), True)}


def is_newer(version: str) -> bool:
    """Returns whether a release has the features of 1.37."""
    return ServerProfile.of(version).minor >= _NEWER


def profile_of(version: str, gates: dict[str, bool]) -> ServerProfile:
    """Returns the profile of a server with all beta gates on and these changes."""
    return ServerProfile.of(version, gates)


def _cases(chosen: argparse.Namespace) -> list[Case]:
    if chosen.files:
        return [load(path) for path in chosen.files]
    newer = is_newer(chosen.version)
    if chosen.only is not None:
        return [draw_case(chosen.seed, number, newer=newer) for number in chosen.only]
    drawn = (draw_case(chosen.seed, number, newer=newer) for number in count())
    about = (case for case in drawn if set(chosen.about) <= set(case.tags))
    return [*map(load, sorted(KEPT.glob("*.json"))), *islice(about, chosen.cases)]


def _tell(result: Result, keep: Path | None) -> None:
    for each in result.first:
        print(f"(at first, {result.case.name}: {each})")
    if result.disagreements:
        print(f"{result.case.name} {' '.join(result.case.tags)}")
        for each in result.disagreements:
            print(f"  {each}")
        if keep is not None:
            print(f"  kept in {save(result.case, keep)}")


if __name__ == "__main__":
    sys.exit(main())
