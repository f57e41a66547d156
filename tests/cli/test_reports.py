"""What `simulate` and `explain` say about preemptions, fragmentation, waves, upgraded slices and plans."""

from __future__ import annotations

import json

import pytest
import yaml

from dra_sdk.cli.reports import plan_lines
from dra_sdk.tools.scheduling.cluster.eviction_plan import EvictionPlan, PlannedEviction
from tests.cli.commands import EXAMPLES, runner

FILES = (EXAMPLES / "classes.yaml", EXAMPLES / "priorities.yaml")
DRIVER = "gpu.nvidia.com"


@pytest.fixture
def run(capsys):
    """Runs a command on the example with priorities."""
    return lambda command, *arguments: runner(capsys)(command, *FILES, *arguments)


@pytest.fixture
def upgrade(tmp_path):
    """A file with the slice of gpu-a after an upgrade of its driver, which has a third GPU."""
    documents = yaml.safe_load_all(FILES[1].read_text())
    raw_slice = next(document for document in documents if document["metadata"]["name"] == "gpu-a-gpu.nvidia.com")
    for device in raw_slice["spec"]["devices"]:
        device["attributes"]["driverVersion"] = {"version": "580.95.5"}
    raw_slice["spec"]["devices"] += [{"name": "gpu-2", "attributes": {"type": {"string": "gpu"}}}]
    raw_slice["spec"]["pool"]["generation"] = 2
    path = tmp_path / "upgrade.yaml"
    path.write_text(yaml.safe_dump(raw_slice))
    return path


def test_preemptions_are_told(run):
    result = run("simulate")
    assert result.status == 1
    line = "  pod serve (priority 1000) evicts batch (priority 0) from gpu-b, for cpu"
    assert f"\n\nPreemption:\n{line}\n" in result.out
    assert "note: pod train: kube-scheduler evicts no pods to free devices" in result.err
    (preemption,) = json.loads(run("simulate", "-o", "json").out)["simulation"]["preemptions"]
    assert preemption == {
        "pod": {"namespace": "default", "name": "serve"},
        "priority": 1000,
        "node": "gpu-b",
        "victims": [{"namespace": "default", "name": "batch"}],
        "missing": ["cpu"],
        "violations": 0,
    }


def test_a_violated_budget_is_told(capsys, tmp_path):
    documents = list(yaml.safe_load_all(FILES[1].read_text()))
    batch = next(
        document for document in documents if document["kind"] == "Pod" and document["metadata"]["name"] == "batch"
    )
    batch["metadata"]["labels"] = {"app": "batch"}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "batch"}}}
    documents.append(
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep"}, "spec": spec}
    )
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(documents))
    result = runner(capsys)("simulate", FILES[0], path)
    assert "from gpu-b, for cpu; 1 victim in spite of a PodDisruptionBudget\n" in result.out
    waves = runner(capsys)("simulate", FILES[0], path, "--waves", "1", "--add-nodes", "2=gpu-b", "--drain", "gpu-b")
    assert "waits for PodDisruptionBudgets" not in waves.out, "batch does not run"


def test_fragmentation_is_in_the_summary(run):
    last = run("simulate").err.splitlines()[-2]
    assert last == f"{DRIVER}: 1 of 4 pieces of hardware wholly free, 1.0 with parts; fragmentation 0 %"
    fragmentation = json.loads(run("simulate", "-o", "json").out)["simulation"]["fragmentation"]
    assert fragmentation["drivers"] == [{"driver": DRIVER, "pieces": 4, "whole": 1, "free": 1.0, "fragmentation": 0.0}]
    assert [pool["pool"] for pool in fragmentation["pools"]] == ["gpu-a", "gpu-b"]


def test_slices_before_and_after_an_upgrade(run, upgrade):
    result = run("simulate", "--override", upgrade)
    change = "gpu-0, gpu-1 changed: attributes[driverVersion] 570.86.10 → 580.95.5"
    assert f"What changes in the slices:\n  {DRIVER}/gpu-a: {change}\n  {DRIVER}/gpu-a: gpu-2 added\n" in result.out
    answer = json.loads(run("simulate", "--override", upgrade, "-o", "json").out)["simulation"]
    assert [(device["device"], device["change"]) for device in answer["devices"]] == [
        ("gpu-0", "changed"),
        ("gpu-1", "changed"),
        ("gpu-2", "added"),
    ]
    assert "No device changes in the slices." in run("simulate", "--override", FILES[0]).out


def test_waves_show_what_moves(run):
    result = run("simulate", "--waves", "1")
    lines = result.out.splitlines()
    assert result.status == 1
    assert lines[0] == "Wave 1 of 2: drain gpu-a"
    assert lines[1].startswith("  pod notebook: gpu-a with gpus ")
    assert "A pod is left without a node in waves 1, 2." in lines
    assert "What changes in the end:" in lines
    assert not any(line.startswith("POD") for line in lines)
    waves = json.loads(run("simulate", "--waves", "1", "-o", "json").out)["simulation"]["waves"]
    assert [(wave["nodes"], wave["fits"], wave["blocked"]) for wave in waves] == [
        (["gpu-a"], False, []),
        (["gpu-b"], False, []),
    ]
    assert waves[0]["changes"][0]["after"] == {"node": None, "devices": {}}


def test_only_the_nodes_of_drain_are_in_waves(run):
    result = run("simulate", "--drain", "gpu-b", "--waves", "5", "--add-nodes", "3=gpu-b")
    assert "Wave 1 of 1: drain gpu-b\n" in result.out
    assert "All pods keep a node in the wave.\n" in result.out
    everywhere = run("simulate", "--waves", "2", "--add-node", "gpu-c=gpu-b")
    assert "Wave 1 of 2: drain gpu-a, gpu-b\n" in everywhere.out
    assert "Wave 2 of 2: drain gpu-c\n" in everywhere.out


def test_slices_of_a_node_are_upgraded_in_its_wave(run, upgrade):
    result = run("simulate", "--waves", "1", "--drain", "gpu-a", "--override", upgrade)
    assert f"{DRIVER}/gpu-a: gpu-2 added" in result.out
    answer = json.loads(run("simulate", "--waves", "1", "--override", upgrade, "-o", "json").out)["simulation"]
    assert [device["device"] for device in answer["devices"]] == ["gpu-0", "gpu-1", "gpu-2"]


@pytest.mark.parametrize("count", ["0", "-1", "x"])
def test_a_number_of_nodes_is_needed(run, count):
    result = run("simulate", f"--waves={count}")
    assert result.status == 2
    assert "must be a whole number, 1 or more" in result.err


def test_a_node_in_waves_that_does_not_exist(run):
    result = run("simulate", "--waves", "1", "--drain", "gpu-x")
    assert (result.status, result.out) == (2, "")
    assert "there is no node gpu-x" in result.err


def test_a_plan_for_a_pod(run):
    result = run("explain", "--make-room", "train")
    assert result.status == 0
    assert result.out.startswith("To place pod train (priority 1000) on gpu-a, evict 1 pod:\n  notebook (")
    plan = json.loads(run("explain", "--make-room", "default/train", "-o", "json").out)
    assert (plan["node"], plan["fewest"]) == ("gpu-a", True)
    (eviction,) = plan["evictions"]
    assert (eviction["name"], eviction["priority"], eviction["owner"]) == ("notebook", 0, "")
    assert eviction["devices"] == [f"{DRIVER}/gpu-a/gpu-0", f"{DRIVER}/gpu-a/gpu-1"]
    assert yaml.safe_load(run("explain", "--make-room", "train", "-o", "yaml").out) == plan


def test_a_plan_after_a_change(run):
    assert run("explain", "--make-room", "train", "--add-node", "gpu-c=gpu-a").out == (
        "No eviction is needed: pod train (priority 1000) fits on gpu-c.\n"
    )
    lost = run("explain", "--make-room", "train", "--lose-node", "gpu-a")
    assert "on gpu-b, evict 1 pod:\n  serve (priority 1000, no controller)" in lost.out


def test_pods_for_which_there_is_no_room(run):
    lost = ("--lose", f"{DRIVER}/gpu-a/gpu-0", "--lose", f"{DRIVER}/gpu-b/gpu-0")
    result = run("explain", "--make-room", "train", *lost)
    assert result.status == 1
    assert result.out.startswith("no evictions make room for pod train: 0 of 2 nodes: ")
    printed = run("explain", "--make-room", "train", *lost, "-o", "json")
    assert (printed.status, json.loads(printed.out)) == (1, None)
    assert "no evictions make room" in printed.err
    unknown = run("explain", "--make-room", "other/train")
    assert (unknown.status, unknown.out) == (2, "")
    assert "there is no pod other/train" in unknown.err


def test_what_a_plan_warns_of():
    evictions = (
        PlannedEviction(("default", "rival"), 7, "ReplicaSet web", (), violates=True),
        PlannedEviction(("team", "bare"), 9, "", ("d/p/g",), violates=False),
    )
    assert plan_lines(EvictionPlan(("default", "p"), 7, "a", evictions, False, 12, ())) == [
        "To place pod p (priority 7) on a, evict 2 pods:",
        "  rival (priority 7, ReplicaSet web) (violates a PodDisruptionBudget)",
        "  team/bare (priority 9, no controller): d/p/g",
        "The search ended at its limit, after 12 trials: fewer evictions may do.",
        "rival is at least as important, and may be back before the pod: scale it down first.",
        "What changes:",
    ]
