"""`python -m tests.cluster.validation`: prints where a real server and this package disagree about random changes."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.cluster.harness.cache import DEFAULT_VERSION
from tests.cluster.harness.progress import Progress
from tests.cluster.validation.plane import GATES, comparison, profile_of
from tests.cluster.validation.run import Outcome, cases


def main(arguments: list[str] | None = None) -> int:
    """Runs the cases; returns 1 if any disagrees."""
    parser = argparse.ArgumentParser("python -m tests.cluster.validation", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, help="how many to draw (default 2000)")
    parser.add_argument("--seed", default=str(time.time_ns()), help="of the cases")
    parser.add_argument("--version", default=DEFAULT_VERSION, help="Kubernetes release")
    parser.add_argument("--gates", choices=list(GATES), default="all", help="which feature gates are on")
    parser.add_argument("--only", type=int, nargs="*", help="only these numbers of the seed")
    chosen = parser.parse_args(arguments)
    profile = profile_of(chosen.version, chosen.gates)
    wanted = max(chosen.only) + 1 if chosen.only else chosen.cases
    outcome = Outcome()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="valid-")))
        compared = stack.enter_context(comparison(folder, chosen.version, chosen.gates, Progress()))
        started = time.monotonic()
        for case in itertools.islice(cases(chosen.seed, profile), wanted):
            if not chosen.only or case.number in chosen.only:
                compared.run(case, outcome)
    print(f"seed {chosen.seed}, {time.monotonic() - started:.0f} s: {outcome.text()}")
    return 1 if outcome.disagreements else 0


if __name__ == "__main__":
    sys.exit(main())
