from __future__ import annotations

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.tools.scheduling.cluster.template_uses import MAX_PODS, WorkloadError
from dra_sdk.tools.scheduling.cluster.workload_kinds import WorkloadKinds

TEMPLATE = {"spec": {"containers": [{"name": "main"}]}}


def uses(version, kind, spec, kinds=None):
    templates = (kinds or WorkloadKinds()).uses(
        {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    )
    return None if templates is None else list(templates)


def names(version, kind, spec, kinds=None):
    return [name for use in uses(version, kind, spec, kinds) or () for name in use.names]


def test_a_deployment_has_a_replica_set_between():
    (use,) = uses("apps/v1", "Deployment", {"replicas": 2, "template": TEMPLATE})
    version, kind, name = use.owner
    assert (version, kind) == ("apps/v1", "ReplicaSet")
    assert list(use.names) == [f"{name}-"] * 2
    assert name.startswith("x-")
    assert use.path == ("spec", "template")


@pytest.mark.parametrize(
    ("version", "kind", "spec", "expected"),
    [
        ("v1", "ReplicationController", {"template": TEMPLATE}, ["x-"]),
        ("apps/v1", "ReplicaSet", {"replicas": 0, "template": TEMPLATE}, []),
        ("apps/v1", "StatefulSet", {"replicas": 2, "ordinals": {"start": 5}, "template": TEMPLATE}, ["x-5", "x-6"]),
        ("apps/v1", "DaemonSet", {"template": TEMPLATE}, []),
        ("batch/v1", "Job", {"template": TEMPLATE}, ["x-"]),
        ("batch/v1", "Job", {"parallelism": 3, "completions": 2, "template": TEMPLATE}, ["x-", "x-"]),
        (
            "batch/v1",
            "Job",
            {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": TEMPLATE},
            ["x-0-", "x-1-"],
        ),
        ("batch/v1", "Job", {"suspend": True, "template": TEMPLATE}, []),
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            {
                "replicatedJobs": [
                    {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": TEMPLATE}}}
                ]
            },
            ["x-w-0-0-", "x-w-0-1-", "x-w-1-0-", "x-w-1-1-"],
        ),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": TEMPLATE}},
            ["x-0", "x-1", "x-0-1", "x-1-1"],
        ),
        (
            "kubeflow.org/v2beta1",
            "MPIJob",
            {"mpiReplicaSpecs": {"Launcher": {"template": TEMPLATE}, "Worker": {"replicas": 2, "template": TEMPLATE}}},
            ["x-launcher-0", "x-worker-0", "x-worker-1"],
        ),
        (
            "ray.io/v1",
            "RayCluster",
            {
                "headGroupSpec": {"template": TEMPLATE},
                "workerGroupSpecs": [{"groupName": "g", "replicas": 1, "numOfHosts": 2, "template": TEMPLATE}],
            },
            ["x-head-", "x-g-worker-", "x-g-worker-"],
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            {"tasks": [{"name": "t", "replicas": 1, "template": TEMPLATE}]},
            ["x-t-0"],
        ),
    ],
)
def test_names_of_the_pods(version, kind, spec, expected):
    assert names(version, kind, spec) == expected


def test_a_job_with_more_completions_than_pods_has_a_note():
    (use,) = uses("batch/v1", "Job", {"parallelism": 2, "completions": 9, "template": TEMPLATE})
    assert use.note == "runs 2 of its 9 pods at a time; the others follow when these end"


def test_a_cron_job_is_one_run():
    job = {"spec": {"template": TEMPLATE}}
    (use,) = uses("batch/v1", "CronJob", {"jobTemplate": job})
    assert (use.path, len(use.names), use.note) == (
        ("spec", "jobTemplate", "spec", "template"),
        1,
        "is simulated as one run",
    )
    (stopped,) = uses("batch/v1", "CronJob", {"jobTemplate": job, "suspend": True})
    assert (list(stopped.names), stopped.note) == ([], "is suspended, so it has no pods")


def test_a_virtual_machine_is_a_launcher_with_its_claims():
    gpus = [{"name": "g", "claimName": "gpu", "requestName": "r"}, {"name": "h", "deviceName": "nvidia.com/A100"}]
    machine = {
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        "domain": {"memory": {"guest": "4Gi"}, "devices": {"gpus": gpus}},
    }
    (use,) = uses("kubevirt.io/v1", "VirtualMachine", {"template": {"spec": machine}})
    assert list(use.names) == ["virt-launcher-x-"]
    spec = use.template["spec"]
    assert spec["resourceClaims"] == machine["resourceClaims"]
    assert spec["containers"][0]["resources"] == {
        "requests": {"memory": "4Gi"},
        "limits": {"nvidia.com/A100": 1},
        "claims": [{"name": "gpu", "request": "r"}],
    }
    (halted,) = uses("kubevirt.io/v1", "VirtualMachine", {"runStrategy": "Halted", "template": {"spec": machine}})
    assert list(halted.names) == []


def test_a_users_table():
    row = {"kind": "Train", "group": "example.com", "items": "spec.cars", "template": "pod", "replicas": "seats"}
    kinds = WorkloadKinds().with_rows([row | {"item": "id", "name": "{name}-{item}-{index}"}], "rows.yaml")
    spec = {"cars": [{"id": "a", "seats": 2, "pod": TEMPLATE}, {"id": "b"}]}
    assert names("example.com/v1", "Train", spec, kinds) == ["x-a-0", "x-a-1"]
    assert uses("example.com/v1", "Train", spec) is None


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (3, "item 0 must be an object with kind"),
        ({"kind": "A", "size": 1}, "unknown field size; known are default, group"),
        ({"kind": "A", "template": 1}, "paths and names must be strings"),
        ({"kind": "A", "name": "{pod}"}, "name may use {name}, {item} and {index}, is '{pod}'"),
    ],
)
def test_a_wrong_row_is_refused(row, problem):
    with pytest.raises(SettingsError) as caught:
        WorkloadKinds().with_rows([row], "rows.yaml")
    assert problem in str(caught.value)


@pytest.mark.parametrize("replicas", [-1, "2", True, MAX_PODS + 1])
def test_a_number_of_pods_without_a_use_is_refused(replicas):
    with pytest.raises(WorkloadError):
        uses("apps/v1", "ReplicaSet", {"replicas": replicas, "template": TEMPLATE})


def test_a_row_may_name_a_pod_spec():
    kinds = WorkloadKinds().with_rows([{"kind": "Train", "group": "example.com", "template": "spec.pod"}], "rows.yaml")
    (use,) = uses("example.com/v1", "Train", {"pod": TEMPLATE["spec"]}, kinds)
    assert (use.template, use.of_spec) == (TEMPLATE, True)
    assert use.place("spec.containers[0].name") == "spec.pod.containers[0].name"
    (use,) = uses("example.com/v1", "Train", {"pod": TEMPLATE}, kinds)
    assert use.place("spec.containers[0].name") == "spec.pod.spec.containers[0].name"
