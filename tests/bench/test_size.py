"""The inputs of `make bench-size`, made small: each form is understood, and all have the same answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench.large_cluster import pods
from tests.bench.size import CASES, run

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
