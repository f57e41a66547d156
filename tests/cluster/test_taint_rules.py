"""An administrator taints a device with a DeviceTaintRule, in the newest API version that the release serves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from dra_sdk.wire.profile import ServerProfile
from tests.cluster.driver_process import ROOT, DriverUnderTest
from tests.cluster.drivers import KNOBS
from tests.cluster.features import VERSION, turned_on
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import claim, pod_with, request
from tests.cluster.pods import allocated, apply_taint_rule, claim_of, run_pod, started_at, wait_unschedulable

PROFILE = ServerProfile.of(VERSION)
TAINT = {"key": "example.com/maintenance", "value": "board", "effect": "NoExecute"}


@pytest.fixture
def taint_device(cluster: Cluster) -> Iterator[Callable[[str], None]]:
    """Makes a rule for one device, which is deleted after the test."""

    def make(device: str) -> None:
        apply_taint_rule(cluster, "maintenance", KNOBS, device, TAINT)

    yield make
    cluster.kubectl("delete", "devicetaintrules", "--all")


def explained(cluster: Cluster, name: str) -> str:
    """Returns what `dra-sdk explain` says about a pod. It is given the feature gates, which a server does not tell."""
    gates = {**turned_on(), PROFILE.taint_rule_gate: True}
    flags = ["--feature-gates", ",".join(f"{gate}=true" for gate in gates if gate.startswith("DRA")), "--pod", name]
    config = str(cluster.kubeconfig)
    command = [sys.executable, "-m", "dra_sdk.cli.main", "explain", "--from-cluster", "--kubeconfig", config, *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_a_rule_evicts_and_keeps_others_away_until_it_is_gone(
    cluster: Cluster, knobs: DriverUnderTest, taint_device: Callable[[str], None]
) -> None:
    run_pod(cluster, "lit", "knobs")
    run_pod(cluster, "bystander", "knobs")
    taken = claim_of(cluster, "lit")
    lamp, since = str(allocated(cluster, taken)[0]["device"]), started_at(cluster, "bystander")
    taint_device(lamp)
    cluster.wait_gone("pod", "lit")
    cluster.wait_gone("resourceclaim", taken)
    knobs.wait(lambda: len(knobs.held()) == 1)
    assert "taints" not in knobs.published(lamp), "a rule does not change the driver's slices"

    rest = claim("rest", [request("all", "knobs", count=7)])
    cluster.apply(rest, pod_with("rest", rest))
    wait_unschedulable(cluster, "rest")
    said = explained(cluster, "rest")
    assert TAINT["key"] in said, said
    cluster.kubectl("delete", "devicetaintrule", "maintenance")
    cluster.wait_pod("rest")
    assert lamp in {each["device"] for each in allocated(cluster, "rest")}
    assert started_at(cluster, "bystander") == since


def test_the_rules_are_served_as_expected(cluster: Cluster) -> None:
    served = [each for each in ("v1", "v1beta2", "v1alpha3") if serves(cluster, each)]
    assert served[0] == PROFILE.taint_rule_versions()[0]


def serves(cluster: Cluster, version: str) -> bool:
    """Returns whether the server has DeviceTaintRules in this API version."""
    found = cluster.api.get(f"/apis/resource.k8s.io/{version}")
    return found is not None and "devicetaintrules" in json.dumps(found)
