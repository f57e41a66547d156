"""Random objects, expressions and pods on a release and in this package; what differs, by field and by feature.

The cases are those of `make test-differential`. Here they are not judged but counted: each difference names the field
that one of both refuses, or the features that the cases have in common.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from dra_sdk.wire.profile import ServerProfile
from tests.cluster.differential.__main__ import KEPT, gates_of, is_newer, profile_of
from tests.cluster.differential.case import load
from tests.cluster.differential.generate import draw_case
from tests.cluster.differential.real import real_cluster
from tests.cluster.differential.runner import Result, Runner, nodes
from tests.cluster.follow.report import Difference
from tests.cluster.harness.progress import Progress
from tests.cluster.validation.plane import comparison
from tests.cluster.validation.plane import profile_of as validation_profile
from tests.cluster.validation.run import Outcome, cases

Gates = Literal["default", "all"]
GATES: Final[tuple[Gates, ...]] = ("default", "all")

#: The gate behind each feature of a generated case that has one.
GATE_OF: Final = {
    "admin": "DRAAdminAccess",
    "alternatives": "DRAPrioritizedList",
    "binding": "DRADeviceBindingConditions",
    "counters": "DRAPartitionableDevices",
    "derived": "DRADerivedAttributes",
    "extended": "DRAExtendedResource",
    "groups": "DRADeviceCompatibilityGroups",
    "lists": "DRAListTypeAttributes",
    "rules": "DRADeviceTaintRules",
    "shares": "DRAConsumableCapacity",
    "skipped-operations": "DRAOptionalNodeOperations",
    "taints": "DRADeviceTaints",
}
_INDEX: Final = re.compile(r"\[[^\]]*\]")
_CHANGED: Final = re.compile(r"^\s+\.?([A-Za-z][\w.\[\]]*)(?: = | is gone)", re.MULTILINE)
_REFUSED: Final = re.compile(r"\('([^']*)', '([A-Za-z]+)'\)")


@dataclass
class Compared:
    """What a comparison found.

    done: what was compared, with numbers.
    differences: what differs.
    """

    done: str
    differences: list[Difference] = field(default_factory=list)


def objects(version: str, gates: Gates, seed: str, count: int) -> Compared:
    """Compares what both make of `count` changed objects."""
    outcome = Outcome()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="follow-")))
        compared = stack.enter_context(comparison(folder, version, gates, Progress()))
        for case in islice(cases(seed, validation_profile(version, gates)), count):
            compared.run(case, outcome)
    done = f"{outcome.counts['cases']} changed objects, {outcome.counts['refused']} refused"
    return Compared(done, list(by_field(outcome.disagreements, gates)))


def pods(version: str, gates: Gates, seed: str, count: int) -> Compared:
    """Compares where both schedule the pods of the kept cases and of `count` drawn ones, and what their claims get."""
    chosen = scheduler_gates(version, gates)
    drawn = (draw_case(seed, number, newer=is_newer(version)) for number in range(count))
    kept = (load(path) for path in sorted(KEPT.glob("*.json")))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="follow-")))
        real = stack.enter_context(real_cluster(folder, version, chosen, Progress(), nodes()))
        summary = Runner(real, profile_of(version, chosen)).run([*kept, *drawn])
    return Compared(summary.text(), list(by_feature(summary.failed, gates)))


def scheduler_gates(version: str, gates: Gates) -> dict[str, bool]:
    """Returns the gates to set beside the beta gates, so that all features are on or those of the release."""
    extra = gates_of(version)
    if gates == "all":
        return extra
    release = ServerProfile.of(version)
    return {name: release.enabled(name) for name in extra}


def by_field(disagreements: Iterable[str], gates: Gates) -> Iterator[Difference]:
    """Groups disagreements about objects by kind and field, without the indexes of lists."""
    found: dict[str, list[str]] = {}
    for text in disagreements:
        found.setdefault(_field(text), []).append(text)
    for name, texts in sorted(found.items()):
        yield Difference("validation", name, f"judged differently, gates: {gates}, {len(texts)} cases", texts)


def by_feature(failed: Iterable[Result], gates: Gates) -> Iterator[Difference]:
    """Groups cases that disagree by what differs, and names the features that most of them have, with their gates."""
    found: dict[str, list[Result]] = {}
    for result in failed:
        for what in dict.fromkeys(each.what for each in result.disagreements):
            found.setdefault(what, []).append(result)
    for what, results in sorted(found.items()):
        tags = Counter(tag for each in results for tag in each.case.tags)
        common = [named(tag) for tag, often in tags.most_common() if often > len(results) / 2]
        said = f"{len(results)} cases, gates: {gates}; most are about {', '.join(common) or 'nothing in particular'}"
        texts = [f"{each.case.name}: {each.disagreements[0]}" for each in results]
        yield Difference("scheduling", what, said, texts)


def named(feature: str) -> str:
    """Returns a feature with its gate, if it has one."""
    return f"{feature} ({GATE_OF[feature]})" if feature in GATE_OF else feature


def _field(text: str) -> str:
    """The kind and the refused field, or the changed one, of a disagreement about an object."""
    words = text.split("\n", 1)[0].split()
    kind = next((word for word in words if word[:1].isupper()), "object")
    refused, changed = _REFUSED.search(text), _CHANGED.search(text)
    path = refused[1] if refused else changed[1] if changed else "unknown"
    return f"{kind}.{_INDEX.sub('', path)}"
