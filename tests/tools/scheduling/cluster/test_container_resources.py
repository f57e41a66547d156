from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster.core_v1 import validate_pod
from tests.tools.scheduling.cluster.objects import parsed, pod

GPU, IMPLICIT, PAGES = "example.com/gpu", "deviceclass.resource.kubernetes.io/gpu", "hugepages-2Mi"
RESOURCES = "spec.containers[0].resources"


def problems(of=(), **resources):
    entries = [{"name": name, "resourceClaimName": name} for name in of]
    made = pod("p", resourceClaims=entries, containers=[{"name": "main", "resources": resources}])
    return [f"{problem.field}: {problem.type}" for problem in validate_pod(parsed(made))]


@pytest.mark.parametrize(
    ("requests", "limits", "expected"),
    [
        ({GPU: "1"}, {GPU: "1"}, []),
        ({}, {GPU: "1"}, []),
        ({GPU: "1"}, {}, [f"{RESOURCES}.limits: Required"]),
        ({GPU: "1"}, {GPU: "2"}, [f"{RESOURCES}.requests: Invalid"]),
        ({GPU: "1"}, {GPU: "1000m"}, []),
        ({IMPLICIT: "1"}, {}, []),
        ({IMPLICIT: "1"}, {IMPLICIT: "2"}, []),
        ({"cpu": "1"}, {"cpu": "2"}, []),
        ({"cpu": "3"}, {"cpu": "2"}, [f"{RESOURCES}.requests: Invalid"]),
        ({"cpu": "1", PAGES: "2Mi"}, {}, [f"{RESOURCES}.limits: Required"]),
        ({PAGES: "2Mi"}, {PAGES: "2Mi"}, [f"{RESOURCES}: Forbidden"]),
        ({}, {"gpu": "1"}, [f"{RESOURCES}.limits[gpu]: Invalid"]),
        ({}, {"example.com/": "1"}, [f"{RESOURCES}.limits[example.com/]: Invalid"]),
        ({}, {"requests.example.com/gpu": "1"}, [f"{RESOURCES}.limits[requests.example.com/gpu]: Invalid"]),
        ({}, {GPU: "500m"}, [f"{RESOURCES}.limits[{GPU}]: Invalid"]),
        ({}, {GPU: "-1"}, [f"{RESOURCES}.limits[{GPU}]: Invalid"]),
    ],
)
def test_amounts(requests, limits, expected):
    assert problems(requests=requests, limits=limits) == expected


@pytest.mark.parametrize(
    ("used", "expected"),
    [
        ([{"name": "a"}, {"name": "b"}], []),
        ([{"name": "a"}, {"name": "a"}], [f"{RESOURCES}.claims[1]: Duplicate"]),
        ([{"name": "a", "request": "r"}, {"name": "a", "request": "s"}], []),
        ([{"name": "a", "request": "r"}, {"name": "a", "request": "r"}], [f"{RESOURCES}.claims[1]: Duplicate"]),
        ([{"name": "a", "request": "r"}, {"name": "a"}], [f"{RESOURCES}.claims[1]: Duplicate"]),
        ([{"name": "a"}, {"name": "a", "request": "r"}], [f"{RESOURCES}.claims[1]: Duplicate"]),
        ([{"name": "a", "request": "R"}], [f"{RESOURCES}.claims[0].request: Invalid"]),
        ([{"request": "r"}], [f"{RESOURCES}.claims[0].name: Required"]),
        ([{"name": "c"}], [f"{RESOURCES}.claims[0].name: NotFound"]),
    ],
)
def test_claims_of_a_container(used, expected):
    assert problems(["a", "b"], claims=used) == expected


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"name": "a", "resourceClaimName": "x.y"}, []),
        ({"name": "a.b", "resourceClaimName": "x"}, ["spec.resourceClaims[0].name: Invalid"]),
        ({"name": "A", "resourceClaimName": "x"}, ["spec.resourceClaims[0].name: Invalid"]),
        ({"name": "a", "resourceClaimName": "X_"}, ["spec.resourceClaims[0].resourceClaimName: Invalid"]),
        (
            {"name": "a", "resourceClaimTemplateName": "X_"},
            ["spec.resourceClaims[0].resourceClaimTemplateName: Invalid"],
        ),
        ({"name": "a"}, ["spec.resourceClaims[0]: Invalid"]),
        ({"resourceClaimName": "x"}, ["spec.resourceClaims[0].name: Required"]),
    ],
)
def test_claims_of_a_pod(entry, expected):
    found = validate_pod(parsed(pod("p", resourceClaims=[entry])))
    assert [f"{problem.field}: {problem.type}" for problem in found] == expected
