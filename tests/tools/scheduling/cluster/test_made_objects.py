from __future__ import annotations

from contextlib import suppress

import pytest

from dra_sdk.tools.scheduling.cluster import ObjectSource, SnapshotReadError, read_snapshot
from dra_sdk.tools.scheduling.cluster.made_objects import made_objects
from dra_sdk.wire.documents import Document

TRAINER = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}


def obj(version, kind, spec, name="w", **metadata):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def read(*objects):
    return read_snapshot([ObjectSource("a.yaml", [Document(made) for made in objects])])


def domain(**spec):
    return obj("resource.nvidia.com/v1beta1", "ComputeDomain", {"numNodes": 1, **spec}, "rack", uid="u")


def test_a_compute_domain_makes_the_template_of_its_channel():
    given = domain(channel={"resourceClaimTemplate": {"name": "rack-channel"}})
    (template,) = read(given).snapshot.templates
    assert (template["metadata"]["namespace"], template["metadata"]["name"]) == ("default", "rack-channel")
    devices = template["spec"]["spec"]["devices"]
    assert devices["requests"][0]["exactly"]["deviceClassName"] == "compute-domain-default-channel.nvidia.com"
    parameters = devices["config"][0]["opaque"]["parameters"]
    assert (parameters["domainID"], parameters["allocationMode"]) == ("u", "Single")
    assert read(given, template).snapshot.templates == (template,), "one that is given stays"


def test_a_compute_domain_without_the_name_of_a_template():
    with pytest.raises(
        SnapshotReadError, match=r"ComputeDomain/rack: spec\.channel\.resourceClaimTemplate\.name: must"
    ):
        read(domain(channel={}))


@pytest.mark.parametrize(
    ("selectors", "expression"),
    [
        ({"celExpressions": ["true"]}, "true"),
        (
            {"attributeSelectors": [{"key": "productName", "value": {"stringValue": "a100"}}]},
            'device.attributes["gpu.nvidia.com"].productName == "a100"',
        ),
        (
            {"attributeSelectors": [{"key": "x.io/n", "op": "GreaterThan", "value": {"intValue": 0}}]},
            'device.attributes["x.io"].n > 0',
        ),
        (
            {"attributeSelectors": [{"key": "v", "op": "NotEqual", "value": {"versionValue": "1.2.3"}}]},
            'device.attributes["gpu.nvidia.com"].v.compareTo(semver("1.2.3")) != 0',
        ),
        (
            {"attributeSelectors": [{"key": "b", "value": {"boolValue": False}}]},
            'device.attributes["gpu.nvidia.com"].b == false',
        ),
        (
            {"capacitySelectors": [{"key": "memory", "value": "40Gi"}]},
            'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("40Gi")) == 0',
        ),
    ],
)
def test_the_claims_that_a_nim_service_describes(selectors, expression):
    device = {"name": "gpu", "count": 2, **selectors}
    service = obj("apps.nvidia.com/v1alpha1", "NIMService", {"draResources": [{"claimSpec": {"devices": [device]}}]})
    (template,) = read(service).snapshot.templates
    exactly = template["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert (exactly["deviceClassName"], exactly["count"]) == ("gpu.nvidia.com", 2)
    assert [selector["cel"]["expression"] for selector in exactly["selectors"]] == [expression]
    assert template["metadata"]["name"] == "w-claimtemplate-0"


def runtime(kind="ClusterTrainingRuntime", **more):
    containers = [{"name": "node", "image": "i", "resources": {"claims": [{"name": "gpu"}]}}]
    pods = {
        "template": {"spec": {"containers": containers, "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}}
    }
    jobs = [
        {
            "name": "dataset",
            "template": {"spec": {"template": {"spec": {"containers": [{"name": "d", "image": "i"}]}}}},
        },
        {"name": "node", "template": {"metadata": {"labels": TRAINER}, "spec": pods}},
    ]
    spec = {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": jobs}}, **more}
    return obj("trainer.kubeflow.org/v1alpha1", kind, spec, "torch")


def job(**spec):
    return obj("trainer.kubeflow.org/v1alpha1", "TrainJob", {"runtimeRef": {"name": "torch"}, **spec}, "t")


def test_a_train_job_has_the_pods_of_its_runtime():
    overrides = [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"a": "b"}, "serviceAccountName": "x"}}]
    trainer = {"numNodes": 3, "resourcesPerNode": {"limits": {"cpu": "1"}}}
    pods = read(job(trainer=trainer, podTemplateOverrides=overrides), runtime()).snapshot.pods
    bases = sorted(pod["metadata"]["generateName"] for pod in pods)
    assert bases == ["t-dataset-0-0-", "t-node-0-0-", "t-node-0-1-", "t-node-0-2-"]
    node = next(pod["spec"] for pod in pods if "node" in pod["metadata"]["name"])
    assert node["containers"][0]["resources"] == {"claims": [{"name": "gpu"}], "limits": {"cpu": "1"}}
    assert node["nodeSelector"] == {"a": "b"}
    assert "serviceAccountName" not in node
    assert len(read(runtime(), job()).snapshot.pods) == 3
    assert len(read(runtime(), job(suspend=True)).snapshot.pods) == 0


def test_a_train_job_needs_its_runtime():
    message = r"TrainJob/t: spec\.runtimeRef\.name: there is no ClusterTrainingRuntime torch"
    with pytest.raises(SnapshotReadError, match=message):
        read(job(), runtime("TrainingRuntime"))
    reference = {"runtimeRef": {"name": "torch", "kind": "TrainingRuntime"}}
    assert len(read(job(**reference), runtime("TrainingRuntime")).snapshot.pods) == 3


@pytest.mark.parametrize("value", [3, "text", [3], {"a": 3}, [[]]])
@pytest.mark.parametrize(
    ("version", "kind", "path"),
    [
        ("apps.nvidia.com/v1alpha1", "NIMService", "draResources"),
        ("apps.nvidia.com/v1alpha1", "NIMService", "resources"),
        ("grove.io/v1alpha1", "PodCliqueSet", "template"),
        ("nvidia.com/v1alpha1", "DynamoGraphDeployment", "services"),
        ("nvidia.com/v1beta1", "DynamoGraphDeployment", "components"),
        ("ray.io/v1", "RayCluster", "workerGroupSpecs"),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob", "runtimeRef"),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob", "podTemplateOverrides"),
        ("resource.nvidia.com/v1beta1", "ComputeDomain", "channel"),
        ("batch.volcano.sh/v1alpha1", "Job", "tasks"),
        ("batch.volcano.sh/v1alpha1", "Job", "schedulerName"),
    ],
)
def test_values_of_another_type_are_problems(version, kind, path, value):
    spec = {"runtimeRef": {"name": "torch"}, path: value}
    with suppress(SnapshotReadError):  # no other error
        read(obj(version, kind, spec), runtime())


def test_only_known_kinds_make_objects():
    with pytest.raises(KeyError):
        list(made_objects(obj("v1", "Pod", {}), {}))


@pytest.mark.parametrize("metadata", [3, {"name": 3}, {"name": "rack", "namespace": 1.5}, {"name": "Rack_"}, {}])
def test_metadata_of_what_makes_objects_is_checked(metadata):
    given = domain(channel={"resourceClaimTemplate": {"name": "rack-channel"}}) | {"metadata": metadata}
    with pytest.raises(SnapshotReadError, match="metadata"):
        read(given)
    with pytest.raises(SnapshotReadError, match="metadata"):
        read(runtime() | {"metadata": metadata})
