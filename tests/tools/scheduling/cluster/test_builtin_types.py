from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster.builtin_types import builtin_kinds, field_problems, kind_problems
from dra_sdk.wire.profile import ServerProfile

PROFILE = ServerProfile.of("1.37")


def texts(type_name, value, profile=PROFILE):
    return [str(problem) for problem in field_problems(type_name, value, profile)]


def test_a_pod_with_known_fields_has_no_problem():
    spec = {"containers": [{"name": "a", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}, "stdin": True}]}
    assert texts("Pod", {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}}, "spec": spec}) == []
    assert texts("Pod", {"metadata": {"managedFields": [{"fieldsV1": {"f:spec": {}}}]}, "spec": None}) == []


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"resourceClaim": []}, "resourceClaim: unknown field; did you mean resourceClaims?"),
        ({"containers": [{"image": 3}]}, "containers[0].image: must be a string, is 3"),
        ({"containers": {}}, "containers: must be a list, is {}"),
        ({"hostNetwork": "yes"}, "hostNetwork: must be true or false, is 'yes'"),
        ({"priority": True}, "priority: must be a whole number, is True"),
        ({"priority": 2**63}, "priority: must be a whole number of 64 bits, is 9223372036854775808"),
        ({"nodeSelector": {"a": 1}}, "nodeSelector[a]: must be a string, is 1"),
        ({"affinity": []}, "affinity: must be an object, is []"),
        ({"requiredDuringSchedulingIgnoredDuringExecution": {}}, "unknown field"),
        ({"podAntiAffinity": {}}, "podAntiAffinity: unknown field; did you mean affinity.podAntiAffinity?"),
    ],
)
def test_misspelt_fields_and_wrong_types(spec, problem):
    (found,) = texts("PodSpec", spec)
    assert found.endswith(problem)


def test_a_field_of_a_later_release():
    spec = {"evictionResponders": []}
    assert texts("PodSpec", spec) == []
    assert texts("PodSpec", spec, ServerProfile.of("1.36")) == [
        "evictionResponders: Kubernetes 1.36 has no such field, 1.37 has"
    ]


@pytest.mark.parametrize(
    ("version", "kind", "problem"),
    [
        ("", "Pod", "apiVersion: must be v1"),
        ("v1", "", "kind: must be set; without it this is no object of Kubernetes"),
        ("v1", "Deployment", "kind: v1 has no kind 'Deployment'; it is in apps/v1"),
        ("apps/v1", "Deploiment", "kind: apps/v1 has no kind 'Deploiment'; did you mean Deployment?"),
        ("app/v1", "Deployment", "apiVersion: 'app/v1' is not a version of Kubernetes; Deployment is in apps/v1"),
    ],
)
def test_misspelt_kinds_and_versions(version, kind, problem):
    (found,) = map(str, kind_problems(version, kind))
    assert found == problem


def test_nothing_is_said_of_other_groups():
    assert list(kind_problems("example.com/v1", "Podd")) == []
    assert "Pod" in builtin_kinds()["v1"]
