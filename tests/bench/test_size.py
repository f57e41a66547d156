from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.bench.large_cluster import GPUS, SHARES, devices, pods
from tests.bench.size import CASES, Usage, row, run

NODES, PODS = 6, 40


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """What the command prints for each case, made small."""
    found = {}
    for case in CASES:
        small = replace(case, nodes=NODES, pods=PODS)
        folder = tmp_path_factory.mktemp(case.name)
        path, output = folder / f"input.{small.form}", folder / "output"
        small.write(path, NODES, PODS)
        assert run(small.command(path), output).status == 0
        found[case.name] = output.read_text()
    return found


def test_every_form_of_the_input_is_understood(answers):
    wanted = {each["metadata"]["name"] for each in pods(PODS) if each["metadata"]["labels"]["app"] != "cpu"}
    for name, each in answers.items():
        placed = {line.split()[0]: line.split()[1] for line in each.partition("\n\n")[0].splitlines()[1:]}
        assert placed.keys() >= wanted, name
        assert len(set(placed.values())) == NODES, name


def test_json_and_yaml_have_the_same_answer(answers):
    assert answers["json"] == answers["json-500"] == answers["yaml-500"]


def test_the_nodes_are_of_one_shape_with_over_200_devices():
    slices = devices()
    assert sum(len(each["spec"].get("devices", ())) for each in slices) == 26 * GPUS
    assert 5000 * 26 * GPUS > 1_000_000


def test_pods_are_mixed_by_their_shares():
    made = [each["metadata"]["labels"]["app"] for each in pods(100)]
    assert {kind: made.count(kind) for kind in SHARES} == SHARES
    assert sum(SHARES.values()) == 100
    assert json.dumps(list(pods(50))) == json.dumps(list(pods(50)))


def test_the_verdict():
    case = CASES[0]
    assert row(case, Usage(59.0, 30.0, 999.0, 0), 1).endswith(": within")
    assert row(case, Usage(120.0, 30.0, 999.0, 0), 1).endswith(": time 2.0 times the limit")
    assert row(case, Usage(1.0, 1.0, 1.0, 2), 1).endswith("FAILED, status 2")
