"""CEL selectors on a real API server and in `dra_sdk.cel`: which compile, and which are refused for their cost.

DeviceClasses are created with dryRun, so nothing is stored. DRA_SDK_CEL_CASES is the number of random expressions
(400), in addition to those of tests/cel/observed.json. DRA_SDK_CEL_SEED repeats a run.
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
from tests.cluster.harness.control_plane import BETA, ControlPlaneSettings, control_plane
from tests.cluster.harness.progress import Progress

JSON = dict[str, Any]
CASES = int(os.environ.get("DRA_SDK_CEL_CASES", "400"))
SEED = os.environ.get("DRA_SDK_CEL_SEED", str(time.time_ns()))
OBSERVED = Path(__file__).parents[1] / "cel" / "observed.json"
FIELD = "spec.selectors[0].cel.expression"
CREATED, UNPROCESSABLE = 201, 422
LISTS = {"DRAListTypeAttributes": True}

MEASURED = "the functions and costs of this package are those of 1.36 and 1.37"
pytestmark = [pytest.mark.timeout(1800), getattr(pytest.mark, MARK)(since=36, because=MEASURED)]


class Server(Requests):
    """The real API server, which judges the expression of a new DeviceClass."""

    def judge(self, text: str) -> str:
        """Returns `accepted`, or the type of the problem: `Invalid`, or `Forbidden` if it costs too much.

        The server answers InternalError for a constant part without a value, which is invalid here.
        """
        status, said = self.send("POST", f"{collection('DeviceClass')}?dryRun=All", device_class(text))
        if status == CREATED:
            return "accepted"
        assert status == UNPROCESSABLE, said
        ((field, kind),) = refusal(said).fields
        assert field == FIELD, said
        return "Invalid" if kind == "InternalError" else kind


def device_class(text: str) -> JSON:
    selectors = [{"cel": {"expression": text}}]
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "random"}}
    return head | {"spec": {"selectors": selectors}}


def ours(text: str, profile: ServerProfile) -> str:
    problems = validate(device_class(text), profile=profile, compile_cel=cel_compiler(profile))
    if not problems:
        return "accepted"
    (problem,) = problems
    assert problem.field == FIELD
    return str(problem.type)


def random_expressions() -> Iterator[str]:
    print(f"DRA_SDK_CEL_SEED={SEED}")
    yield from (each["expression"] for each in json.loads(OBSERVED.read_text())["cases"])
    for number in range(CASES):
        yield expression(random.Random(f"{SEED}/{number}"))


@pytest.mark.parametrize("gates", [{}, LISTS], ids=["single values", "lists"])
def test_both_judge_expressions_in_the_same_way(tmp_path: Path, gates: dict[str, bool]) -> None:
    settings = ControlPlaneSettings(VERSION, {**BETA, **gates})
    profile = ServerProfile.of(VERSION, gates)
    tally: Counter[str] = Counter()
    different = []
    with control_plane("cel", tmp_path, settings, Progress()) as plane:
        server = Server(plane.api)
        try:
            for text in random_expressions():
                real, own = server.judge(text), ours(text, profile)
                tally[real] += 1
                if real != own:
                    different.append(f"{text!r}: {VERSION} says {real}, we say {own}")
        finally:
            server.close()
    print(dict(tally))
    assert not different, "\n".join(different)
    assert min(tally["accepted"], tally["Invalid"]) > CASES // 10
    assert tally["Forbidden"] > CASES // 40
