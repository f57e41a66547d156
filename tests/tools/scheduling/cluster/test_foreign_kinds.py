from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import ObjectSource, SnapshotReadError, read_snapshot
from dra_sdk.wire.documents import Document

CLAIMS = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
SPEC = {"containers": [{"name": "main", "resources": {"claims": [{"name": "gpu"}]}}], "resourceClaims": CLAIMS}


def read(version, kind, spec, name="w", **more):
    made = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    return read_snapshot([ObjectSource("a.yaml", [Document(made)])], **more)


def names(reading):
    """The names of pods, without five random characters."""
    found = [pod["metadata"] for pod in reading.snapshot.pods]
    return sorted(metadata.get("generateName") or metadata["name"] for metadata in found)


def uses_the_claim(reading):
    return all(pod["spec"]["resourceClaims"] == CLAIMS for pod in reading.snapshot.pods)


def test_pod_clique_set():
    cliques = [
        {"name": "router", "spec": {"replicas": 1, "podSpec": SPEC}},
        {"name": "leader", "labels": {"a": "b"}, "spec": {"replicas": 1, "podSpec": SPEC}},
        {"name": "worker", "spec": {"replicas": 2, "podSpec": SPEC}},
    ]
    groups = [{"name": "model", "cliqueNames": ["leader", "worker"], "replicas": 2}]
    spec = {"replicas": 2, "template": {"cliques": cliques, "podCliqueScalingGroups": groups}}
    reading = read("grove.io/v1alpha1", "PodCliqueSet", spec, "g")
    of_replica = ["g-{}-router-", *(f"g-{{}}-model-{copy}-{name}-" for copy in (0, 1) for name in ("leader", "worker"))]
    expected = [base.format(replica) for replica in (0, 1) for base in [*of_replica, *of_replica[2::2]]]
    assert names(reading) == sorted(expected)
    assert uses_the_claim(reading)
    leaders = [pod for pod in reading.snapshot.pods if "leader" in pod["metadata"]["name"]]
    assert {pod["metadata"]["labels"]["a"] for pod in leaders} == {"b"}
    assert leaders[0]["metadata"]["ownerReferences"][0]["kind"] == "PodClique"
    assert reading.warnings == ()
    spec["template"]["resourceSharing"] = [{"name": "pool", "scope": "PerReplica"}]
    (warning,) = read("grove.io/v1alpha1", "PodCliqueSet", spec, "g").warnings
    assert warning.endswith("PodCliqueSet/g shares claims by resourceSharing, which is not simulated")


def test_a_mistake_in_a_pod_spec_is_at_its_place():
    spec = {"template": {"cliques": [{"name": "a", "spec": {"podSpec": {**SPEC, "resourceClaim": []}}}]}}
    with pytest.raises(SnapshotReadError, match=r"spec\.template\.cliques\[0\]\.spec\.podSpec\.resourceClaim: unknown"):
        read("grove.io/v1alpha1", "PodCliqueSet", spec)


def test_dynamo_graph_deployment():
    worker = {
        "replicas": 2,
        "multinode": {"nodeCount": 2},
        "resources": {"limits": {"gpu": "2", "cpu": "4"}, "claims": [{"name": "gpu"}]},
        "extraPodSpec": {"resourceClaims": CLAIMS, "mainContainer": {"image": "i"}, "nodeSelector": {"a": "b"}},
    }
    reading = read(
        "nvidia.com/v1alpha1", "DynamoGraphDeployment", {"services": {"Worker": worker, "Frontend": {}}}, "d"
    )
    assert names(reading) == ["d-frontend-", *["d-worker-"] * 4]
    spec = next(pod["spec"] for pod in reading.snapshot.pods if "worker" in pod["metadata"]["name"])
    assert spec["resourceClaims"] == CLAIMS
    assert spec["nodeSelector"] == {"a": "b"}
    resources = {"limits": {"cpu": "4", "nvidia.com/gpu": "2"}, "claims": [{"name": "gpu"}]}
    assert spec["containers"] == [{"name": "main", "image": "i", "resources": resources}]


def test_dynamo_graph_deployment_of_v1beta1():
    components = [{"name": "decode", "replicas": 2, "podTemplate": {"spec": SPEC}}]
    reading = read("nvidia.com/v1beta1", "DynamoGraphDeployment", {"components": components}, "d")
    assert names(reading) == ["d-decode-", "d-decode-"]
    assert uses_the_claim(reading)


def test_nim_service():
    described = {"generateName": "gpu", "devices": [{"name": "g"}]}
    resources = [
        {"resourceClaimTemplateName": "one", "requests": ["a", "b"]},
        {"resourceClaimName": "shared"},
        {"claimSpec": described},
    ]
    reading = read("apps.nvidia.com/v1alpha1", "NIMService", {"replicas": 2, "draResources": resources}, "n")
    assert names(reading) == ["n-", "n-"]
    spec = reading.snapshot.pods[0]["spec"]
    assert spec["resourceClaims"] == [
        {"name": "claim-0", "resourceClaimTemplateName": "one"},
        {"name": "claim-1", "resourceClaimName": "shared"},
        {"name": "claim-2", "resourceClaimTemplateName": "n-gpu-2"},
    ]
    assert spec["containers"][0]["resources"]["claims"] == [
        {"name": "claim-0", "request": "a"},
        {"name": "claim-0", "request": "b"},
        {"name": "claim-1"},
        {"name": "claim-2"},
    ]
    (template,) = reading.snapshot.templates
    assert template["metadata"]["name"] == "n-gpu-2"


@pytest.mark.parametrize(("given", "expected"), [(None, "volcano"), ("default-scheduler", "default-scheduler")])
def test_pods_of_a_volcano_job_are_for_its_scheduler(given, expected):
    spec = {"tasks": [{"name": "t", "replicas": 2, "template": {"spec": SPEC}}]}
    reading = read("batch.volcano.sh/v1alpha1", "Job", spec | ({"schedulerName": given} if given else {}))
    assert {pod["spec"]["schedulerName"] for pod in reading.snapshot.pods} == {expected}
    assert names(reading) == ["w-t-0", "w-t-1"]


@pytest.mark.parametrize(
    ("group", "count"),
    [
        ({}, 0),
        ({"minReplicas": 2}, 2),
        ({"replicas": 3}, 3),
        ({"replicas": 3, "maxReplicas": 1}, 1),
        ({"replicas": 1, "numOfHosts": 4}, 4),
        ({"replicas": 3, "suspend": True}, 0),
    ],
)
def test_the_workers_of_ray(group, count):
    workers = [{"groupName": "g", "template": {"spec": SPEC}, **group}]
    spec = {"headGroupSpec": {"template": {"spec": SPEC}}, "workerGroupSpecs": workers}
    assert names(read("ray.io/v1", "RayCluster", spec)) == ["w-g-worker-"] * count + ["w-head-"]
    assert names(read("ray.io/v1", "RayCluster", spec | {"suspend": True})) == []


def test_a_pool_of_virtual_machines():
    devices = {"gpus": [{"name": "g", "claimName": "gpu", "requestName": "r"}]}
    machine = {"domain": {"devices": devices, "memory": {"guest": "1Gi"}}, "resourceClaims": CLAIMS}
    spec = {"replicas": 2, "virtualMachineTemplate": {"spec": {"template": {"spec": machine}}}}
    reading = read("pool.kubevirt.io/v1beta1", "VirtualMachinePool", spec, "p")
    assert names(reading) == ["virt-launcher-p-"] * 2
    assert uses_the_claim(reading)


@pytest.mark.parametrize(
    ("version", "kind", "spec"),
    [
        ("scheduling.volcano.sh/v1beta1", "Queue", {"capability": {"nvidia.com/gpu": 8}}),
        ("kueue.x-k8s.io/v1beta2", "Workload", {"podSets": [{"template": {"spec": SPEC}}]}),
        ("karpenter.sh/v1", "NodePool", {"template": {}, "limits": {"nvidia.com/gpu": 8}}),
    ],
)
def test_kinds_that_make_no_pods_are_passed_over(version, kind, spec):
    assert read(version, kind, spec).ignored_kinds == {kind: 1}


def test_what_can_be_done_about_a_kind_that_is_not_known():
    with pytest.raises(
        SnapshotReadError, match=r"describe it in a file of --workloads \(it has pods at spec\.a\[0\]\.pod\)"
    ):
        read("example.com/v1", "Train", {"a": [{"pod": SPEC}]})
    with pytest.raises(SnapshotReadError, match="it has no pod template that --workloads could describe"):
        read("example.com/v1", "Train", {"gpus": 4})
