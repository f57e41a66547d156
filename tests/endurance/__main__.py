"""`make endurance`: pods come and go on a node with three drivers; a table and a picture say what the drivers used.

Ends with status 1 if memory, descriptors, threads, files or processor time of a claim grow, or if a pod fails for good.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from math import inf
from pathlib import Path

from tests.endurance.node import EnduranceNode
from tests.endurance.report import picture, table
from tests.endurance.run import Endurance

PODS = 50_000
BATCHES = 100


def main(arguments: Sequence[str]) -> int:
    """Run, print the table, write the picture."""
    parser = argparse.ArgumentParser(prog="python -m tests.endurance", description=__doc__)
    parser.add_argument("--pods", type=int, default=PODS, help=f"how many pods come and go ({PODS})")
    parser.add_argument("--batches", type=int, default=BATCHES, help=f"how often is sampled ({BATCHES})")
    parser.add_argument("--seed", type=int, default=1, help="of pods and faults (1)")
    parser.add_argument("--picture", type=Path, default=Path("build/endurance.svg"), help="the picture to write")
    parser.add_argument("--minutes", type=float, default=inf, help="no further batch begins after so many minutes")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="dra-endurance-") as folder, EnduranceNode(Path(folder)) as node:
        endurance = Endurance(
            node, options.pods, batches=options.batches, seed=options.seed, limit=60 * options.minutes
        )
        result = endurance.run()
    options.picture.parent.mkdir(parents=True, exist_ok=True)
    options.picture.write_text(picture(result))
    print(table(result))
    print(f"picture: {options.picture}")
    return int(bool(result.complaints))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
