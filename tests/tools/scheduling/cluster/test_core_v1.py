from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster.core_v1 import Namespace, Node, validate_core_object, validate_pod
from tests.tools.scheduling.cluster.objects import node, parsed, pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
FIRST = "spec.resourceClaims[0]"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"resourceClaims": [{"name": "a", "resourceClaimName": "b"}]}, []),
        ({"resourceClaims": [{"resourceClaimName": "b"}]}, [f"{FIRST}.name: must be set"]),
        (
            {"resourceClaims": [{"name": "a"}]},
            [f"{FIRST}: must have one of resourceClaimName and resourceClaimTemplateName"],
        ),
        (
            {"resourceClaims": [{"name": "a", "resourceClaimName": "b", "resourceClaimTemplateName": "c"}]},
            [f"{FIRST}: must have one of resourceClaimName and resourceClaimTemplateName"],
        ),
        (
            {"resourceClaims": [{"name": "a", "resourceClaimName": "b"}] * 2},
            ["spec.resourceClaims[1].name: 'a' was given before"],
        ),
        (
            {"initContainers": [{"resources": {"claims": [{"name": "a"}]}}]},
            ["spec.initContainers[0].resources.claims[0].name: the pod has no claim 'a' in spec.resourceClaims"],
        ),
        (
            {"containers": [{"resources": {"requests": {"cpu": "-1"}}}]},
            ["spec.containers[0].resources.requests[cpu]: must not be negative, is -1"],
        ),
        (
            {"tolerations": [{"key": "a", "operator": "Is", "effect": "Now"}, {"operator": "Equal"}]},
            [
                "spec.tolerations[0].operator: must be one of Equal, Exists, is 'Is'",
                "spec.tolerations[0].effect: must be one of NoExecute, NoSchedule, PreferNoSchedule, is 'Now'",
                "spec.tolerations[1].operator: must be Exists if there is no key",
            ],
        ),
        (
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}},
            [f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms: must have at least one term"],
        ),
        (
            {"containers": [{"resources": {"limits": {"a.b/c": "1500m"}}}]},
            ["spec.containers[0].resources.limits[a.b/c]: must be a whole number, is 1500m"],
        ),
    ],
)
def test_fields_of_a_pod(spec, expected):
    assert [str(problem) for problem in validate_pod(parsed(pod("p", **spec)))] == expected


def test_names_and_node_taints():
    tainted = node("a", taints=[{"key": "k", "effect": "NoSchedule"}, {"effect": "Never"}])
    assert [str(problem) for problem in validate_core_object(Node.model_validate(tainted))] == [
        "spec.taints[1].key: must be set",
        "spec.taints[1].effect: must be one of NoExecute, NoSchedule, PreferNoSchedule, is 'Never'",
    ]
    assert [problem.field for problem in validate_core_object(parsed(pod("A b", namespace="x.y")))] == [
        "metadata.name",
        "metadata.namespace",
    ]
    assert [
        problem.field for problem in validate_core_object(Namespace.model_validate({"metadata": {"name": "x.y"}}))
    ] == ["metadata.name"]
