from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import (
    ObjectSource,
    SnapshotReadError,
    add_nodes,
    read_snapshot,
    schedule,
    snapshot,
)
from dra_sdk.tools.scheduling.cluster.what_if import NodeTemplate
from dra_sdk.tools.scheduling.cluster.workloads import with_daemon_pods
from dra_sdk.wire.documents import Document
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.cluster.objects import cluster, device_class, gpus, node, nodes_of, pod, template

POD = {"containers": [{"name": "main"}], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}


def workload(kind, name="w", version="apps/v1", **spec):
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"template": {"spec": POD}, **spec},
    }


def read(*objects, **more):
    source = ObjectSource("a.yaml", [Document(document) for document in objects])
    return read_snapshot([source], ServerProfile.of("1.37"), **more)


def problems(*objects):
    with pytest.raises(SnapshotReadError) as caught:
        read(*objects)
    return list(caught.value.problems)


def test_each_pod_of_a_deployment_gets_a_claim_of_its_own():
    reading = read(workload("Deployment", replicas=3), template("one"), device_class(), node("n"), gpus("n", "a", "b"))
    outcome = schedule(reading.snapshot)
    assert [placement.node for placement in outcome.pods] == ["n", "n", None]
    owners = {claim["metadata"]["ownerReferences"][0]["name"] for claim in outcome.snapshot.claims}
    assert owners == {placement.pod[1] for placement in outcome.pods}
    assert not outcome.complete


def test_a_stateful_set_has_numbered_pods():
    pods = read(workload("StatefulSet", replicas=2)).snapshot.pods
    assert [pod["metadata"]["name"] for pod in pods] == ["w-0", "w-1"]
    assert pods[1]["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "w-1"
    assert pods[1]["metadata"]["labels"]["apps.kubernetes.io/pod-index"] == "1"
    assert pods[0]["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet"


def test_pods_that_exist_are_not_made_again():
    made = read(workload("Deployment", replicas=3)).snapshot.pods
    assert len(read(workload("Deployment", replicas=3), *made[:2]).snapshot.pods) == 3
    assert len(read(workload("Deployment", replicas=1), *made).snapshot.pods) == 3


@pytest.fixture
def short_suffixes(monkeypatch):
    """27 random names for each base, so that most of those that are drawn are in use."""
    monkeypatch.setattr(snapshot, "_SUFFIX_LENGTH", 1)


@pytest.mark.usefixtures("short_suffixes")
def test_as_many_objects_come_out_as_go_in():
    def unnamed(obj):
        return obj | {"metadata": {"generateName": "x-"}}

    unnamed_pods = [unnamed(pod("-", templates=["one"])) for _ in range(20)]
    jobs = [unnamed(workload("Job", version="batch/v1")) for _ in range(20)]
    given = [workload("Deployment", replicas=20), *unnamed_pods, *jobs, workload("DaemonSet", "d"), template("one")]
    nodes = [node(f"n{number}") for number in range(20)]
    outcome = schedule(
        read(*given, *nodes, device_class(), *(gpus(f"n{n}", "a", "b", "c", "d") for n in range(20))).snapshot
    )
    assert len(outcome.pods) == len(outcome.snapshot.pods) == 20 + 20 + 20 + 20
    assert len(outcome.snapshot.claims) == 80
    assert outcome.complete
    owners = [claim["metadata"]["ownerReferences"][0]["uid"] for claim in outcome.snapshot.claims]
    assert len(set(owners)) == 80


@pytest.mark.usefixtures("short_suffixes")
def test_each_pod_with_extended_resources_has_a_claim_of_its_own():
    wanted = [{"name": "main", "resources": {"limits": {"example.com/gpu": "1"}}}]
    long = [pod(f"{'p' * 62}{letter}", containers=wanted) for letter in "abcdefghijklmnopqrst"]
    offered = [
        node("n"),
        device_class(extendedResourceName="example.com/gpu"),
        gpus("n", *(f"g{n}" for n in range(20))),
    ]
    outcome = schedule(read(*long, *offered).snapshot)
    assert outcome.complete
    assert len(outcome.snapshot.claims) == len({placement.claims for placement in outcome.pods}) == 20


def test_a_pod_whose_name_another_object_has_is_named():
    reading = read(workload("StatefulSet", replicas=8), *(pod(f"w-{number}") for number in range(7)))
    assert len(reading.snapshot.pods) == 8
    (warning,) = reading.warnings
    assert warning == (
        "a.yaml: StatefulSet/w cannot make pods that others have the names of: w-0, w-1, w-2, w-3, w-4 and 2 more"
    )


def test_the_pods_of_each_template_of_a_controller_are_counted_apart():
    groups = [{"groupName": "g", "replicas": 3, "template": {"spec": POD}}]
    spec = {"headGroupSpec": {"template": {"spec": POD}}, "workerGroupSpecs": groups}
    cluster_of_ray = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "r"}, "spec": spec}
    made = read(cluster_of_ray).snapshot.pods
    head = [pod for pod in made if pod["metadata"]["name"].startswith("r-head-")]
    assert len(head) == 1
    for existing in (made[1:3], [*head, made[2]], made):
        assert len(read(cluster_of_ray, *existing).snapshot.pods) == 4


def test_a_paused_deployment_has_no_pods():
    reading = read(workload("Deployment", replicas=3, paused=True))
    assert reading.snapshot.pods == ()
    assert reading.warnings == ("a.yaml: Deployment/w is paused, so it has no new pods",)


def test_a_job_of_another_controller_has_no_pods():
    reading = read(workload("Job", version="batch/v1", managedBy="kueue.x-k8s.io/multikueue"))
    assert reading.snapshot.pods == ()
    (warning,) = reading.warnings
    assert warning.endswith("is managed by kueue.x-k8s.io/multikueue, which is not simulated, so it has no pods")
    assert len(read(workload("Job", version="batch/v1", managedBy="kubernetes.io/job-controller")).snapshot.pods) == 1


def test_pods_of_a_job_have_its_labels():
    job = workload("Job", version="batch/v1", completions=2, parallelism=2, completionMode="Indexed")
    metadata = read(job).snapshot.pods[1]["metadata"]
    assert metadata["labels"]["batch.kubernetes.io/job-name"] == metadata["labels"]["job-name"] == "w"
    assert metadata["annotations"] == {"batch.kubernetes.io/job-completion-index": "1"}


def test_notes_of_workloads_are_warnings():
    (warning,) = read(workload("Job", version="batch/v1", suspend=True)).warnings
    assert warning == "a.yaml: Job/w is suspended, so it has no pods"


def test_a_job_in_a_queue_of_kueue_is_noted():
    job = workload("Job", version="batch/v1")
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "team"}
    reading = read(job)
    assert len(reading.snapshot.pods) == 1
    assert reading.warnings == (
        "a.yaml: Job/w waits until Kueue admits it, which is not simulated; it is taken as admitted",
    )


def test_a_daemon_set_has_a_pod_on_each_node_that_accepts_it():
    tainted = node("c", taints=[{"key": "k", "effect": "NoSchedule"}])
    snapshot = read(workload("DaemonSet"), template("one"), device_class(), gpus("a", "gpu-0")).snapshot
    snapshot = snapshot.with_objects([node("a"), node("b", unschedulable=True), tainted])
    outcome = schedule(snapshot)
    assert sorted(str(placement.node) for placement in outcome.pods) == ["None", "a"]
    again = with_daemon_pods(outcome.snapshot)
    assert len(again.pods) == 2
    after = schedule(add_nodes(outcome.snapshot, NodeTemplate.of(snapshot, "a"), ["d"]))
    assert {placement.node for placement in after.pods} == {"a", "d", None}


def test_two_workloads_of_one_name():
    (found,) = problems(workload("Deployment"), workload("Deployment"))
    assert found == "a.yaml: Deployment/w: is also defined at a.yaml"


@pytest.mark.parametrize(
    ("obj", "problem"),
    [
        (workload("Deployment", replica=2), "Deployment/w: spec.replica: unknown field; did you mean replicas?"),
        (workload("Deployment", replicas=-1), "spec.replicas: must be a whole number, 0 or more"),
        (workload("Deployment", version="v1"), "kind: v1 has no kind 'Deployment'; it is in apps/v1"),
        (
            workload("JobSet", version="jobset.x-k8s.io/v1alpha2"),
            "spec: JobSet has no pod template where one is expected",
        ),
        (
            workload("RayCluster", version="ray.io/v1", headGroupSpec={"template": {"spec": {"container": []}}}),
            "spec.headGroupSpec.template.spec.container: unknown field; did you mean containers?",
        ),
        (workload("Train", version="example.com/v1"), "kind: Train of example.com/v1 is not understood"),
        (pod("p", resourceClaim=[]), "Pod/p: spec.resourceClaim: unknown field; did you mean resourceClaims?"),
        (pod("p") | {"apiVersion": ""}, "Pod/p: apiVersion: must be v1"),
    ],
)
def test_what_is_not_understood_is_told(obj, problem):
    assert problem in problems(obj)[0]


@pytest.mark.parametrize("value", [["g"], {"a": 1}, 5])
def test_a_claim_of_a_container_whose_name_is_no_text(value):
    spec = {"containers": [{"name": "c", "resources": {"claims": [{"name": value}]}}]}
    rollout = workload("Rollout", version="argoproj.io/v1alpha1", template={"spec": spec})
    assert "resources.claims[0].name: must be a string" in problems(rollout)[0]


def test_kinds_that_have_nothing_to_do_with_devices_are_passed_over():
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": []}}
    certificate = {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": {"name": "s"}, "spec": {}}
    train = workload("Train", version="example.com/v1")
    assert dict(read(service, certificate, train, ignore=["Train"]).ignored_kinds) == {
        "Service": 1,
        "Certificate": 1,
        "Train": 1,
    }


def test_keys_of_labels_say_nothing_about_devices():
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"}}
    for field in ("nodeLabels", "labels", "podAnnotations", "nodeSelector", "selector"):
        assert read(flavor | {"spec": {field: {"example.com/gpu": "x"}}}).ignored_kinds == {"ResourceFlavor": 1}
    (found,) = problems(flavor | {"spec": {"limits": {"example.com/gpu": "1"}}})
    assert "its field spec.limits.example.com/gpu may mean" in found


@pytest.mark.parametrize("name", [{}, {"name": None}, {"name": ""}])
@pytest.mark.parametrize(
    "obj",
    [
        pod("-"),
        node("-"),
        device_class(),
        template("-"),
        workload("Deployment"),
        workload("Job", version="batch/v1"),
        workload("Job", version="batch.volcano.sh/v1alpha1", tasks=[{"template": {"spec": POD}}]),
    ],
)
def test_every_kind_may_have_generate_name(obj, name):
    made = read(obj | {"metadata": {"generateName": "x-", **name}}).snapshot
    kept = (*made.pods, *made.nodes, *made.classes, *made.templates)
    assert [obj["metadata"]["name"][:2] for obj in kept] == ["x-"]


def test_the_nodes_of_pods_without_claims():
    outcome = schedule(cluster(node("n"), pod("p")))
    assert nodes_of(outcome) == {"p": "n"}
