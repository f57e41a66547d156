"""Which suites take their turn in CI, beside what it always runs: prints their names, and to stderr why.

    python3 .ci/suites.py                           # two for HEAD, by suites.toml
    CI_SUITES="lab faults" python3 .ci/suites.py    # chosen by hand

The hash of HEAD draws one of the pairs that fit into the time and have a suite whose paths the newest 20 commits
changed. So a commit has the same suites in each run, and nothing starves: a pair may have one suite whose paths rest,
since a change elsewhere can break it, and if all have changed paths, which is usual, each pair is as likely as another.
With seven suites, each is in 2 of 7 landings then; if only some have changed paths, these come more often, and the
others in about every sixth landing. The oldest commit of a shallow clone shows each file as new: where it is among the
20, all suites count as changed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import Any, Final

Table = dict[str, Any]
TABLE: Final[Table] = tomllib.loads(Path(__file__).with_name("suites.toml").read_text())
COMMITS: Final = 20


def choose(table: Table, paths: Iterable[str], head: str) -> dict[str, str]:
    """Two suites for the commit `head`, each with the reason; `paths` are those that changed."""
    suites = table["suites"]
    changed = {name: path for path in paths for name, suite in suites.items() if path.startswith(tuple(suite["paths"]))}
    pairs = [
        pair
        for pair in combinations(suites, 2)
        if set(pair) != set(table["apart"])
        and table["always"] + sum(suites[name]["seconds"] for name in pair) <= table["goal"]
        and (not changed or set(pair) & changed.keys())
    ]
    turn = int(sha256(head.encode()).hexdigest(), 16) % len(pairs)
    drawn = f"pair {turn + 1} of {len(pairs)} by the hash of {head[:12]}"
    return {
        name: f"{drawn}; {f'{changed[name]} changed' if name in changed else 'its paths rest'}" for name in pairs[turn]
    }


def by_hand(table: Table, names: list[str]) -> dict[str, str]:
    """Return the suites with these names; SystemExit if there is no such suite."""
    if unknown := [name for name in names if name not in table["suites"]]:
        sys.exit(f"CI_SUITES: there is no suite {', '.join(unknown)}; there are {', '.join(table['suites'])}")
    return dict.fromkeys(names, "CI_SUITES names it")


def _git(*arguments: str) -> list[str]:
    command = ["git", "-c", "safe.directory=*", *arguments]  # the clone may be another user's
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()


if __name__ == "__main__":
    if named := os.environ.get("CI_SUITES", "").split():
        chosen = by_hand(TABLE, named)
    else:
        chosen = choose(TABLE, _git("log", f"-{COMMITS}", "--name-only", "--format="), *_git("rev-parse", "HEAD"))
    for suite, reason in chosen.items():
        print(f"suite {suite}: {reason}", file=sys.stderr)
    print(*chosen)
