"""CEL selectors on a real API server and in `dra_sdk.cel`: which compile, and which are refused for their cost.

DeviceClasses are created with dryRun, so nothing is stored. DRA_SDK_CEL_CASES says how many are drawn beside
those of tests/cel/observed.json (400), DRA_SDK_CEL_SEED repeats a run.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.tools.scheduling.cel_validation import cel_compiler
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import validate
from tests.cluster.differential.api import Requests, collection, refusal
from tests.cluster.expressions import expression
from tests.cluster.features import MARK, VERSION
from tests.cluster.harness.plane import BETA, PlaneSettings, control_plane
from tests.cluster.harness.progress import Progress

JSON = dict[str, Any]
CASES = int(os.environ.get("DRA_SDK_CEL_CASES", "400"))
SEED = os.environ.get("DRA_SDK_CEL_SEED", str(time.time_ns()))
OBSERVED = Path(__file__).parents[1] / "cel" / "observed.json"
FIELD = "spec.selectors[0].cel.expression"
TAKEN, UNPROCESSABLE = 201, 422
LISTS = {"DRAListTypeAttributes": True}

MEASURED = "the functions and prices of this package are those of 1.36 and 1.37"
pytestmark = [pytest.mark.timeout(1800), getattr(pytest.mark, MARK)(since=36, because=MEASURED)]


class Server(Requests):
    """Judges an expression as a new DeviceClass has it."""

    def judge(self, text: str) -> str:
        """`taken`, or the type of the problem: `Invalid`, or `Forbidden` for what costs too much.

        A constant part that has no value is an InternalError to the server, and plainly invalid to us.
        """
        status, said = self._send("POST", f"{collection('DeviceClass')}?dryRun=All", device_class(text))
        if status == TAKEN:
            return "taken"
        assert status == UNPROCESSABLE, said
        ((field, kind),) = refusal(said).fields
        assert field == FIELD, said
        return "Invalid" if kind == "InternalError" else kind


def device_class(text: str) -> JSON:
    selectors = [{"cel": {"expression": text}}]
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "drawn"}}
    return head | {"spec": {"selectors": selectors}}


def ours(text: str, profile: ServerProfile) -> str:
    problems = validate(device_class(text), profile=profile, compile_cel=cel_compiler(profile))
    if not problems:
        return "taken"
    (problem,) = problems
    assert problem.field == FIELD
    return str(problem.type)


def drawn() -> Iterator[str]:
    print(f"DRA_SDK_CEL_SEED={SEED}")
    yield from (each["expression"] for each in json.loads(OBSERVED.read_text())["cases"])
    for number in range(CASES):
        yield expression(random.Random(f"{SEED}/{number}"))


@pytest.mark.parametrize("gates", [{}, LISTS], ids=["single values", "lists"])
def test_expressions_are_judged_alike(tmp_path: Path, gates: dict[str, bool]) -> None:
    settings = PlaneSettings(VERSION, {**BETA, **gates})
    profile = ServerProfile.of(VERSION, gates)
    tally: Counter[str] = Counter()
    different = []
    with control_plane("cel", tmp_path, settings, Progress()) as plane:
        server = Server(plane.api)
        try:
            for text in drawn():
                real, own = server.judge(text), ours(text, profile)
                tally[real] += 1
                if real != own:
                    different.append(f"{text!r}: {VERSION} says {real}, we say {own}")
        finally:
            server.close()
    print(dict(tally))
    assert not different, "\n".join(different)
    assert min(tally["taken"], tally["Invalid"]) > CASES // 10
    assert tally["Forbidden"] > CASES // 40
