from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk.kube import paths


def test_paths_of_the_objects_a_driver_meets():
    assert paths.resource_slices() == "/apis/resource.k8s.io/v1/resourceslices"
    assert paths.resource_slice("a") == "/apis/resource.k8s.io/v1/resourceslices/a"
    assert paths.resource_claim("ns", "c") == "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c"
    assert paths.resource_claim_status("ns", "c").endswith("/resourceclaims/c/status")
    assert paths.resource_claims() == "/apis/resource.k8s.io/v1/resourceclaims"
    assert paths.resource_claim_templates("ns") == "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaimtemplates"
    assert paths.resource_claim_templates() == "/apis/resource.k8s.io/v1/resourceclaimtemplates"
    assert paths.device_taint_rules("resource.k8s.io/v1beta2") == "/apis/resource.k8s.io/v1beta2/devicetaintrules"
    assert paths.device_class("gpu") == "/apis/resource.k8s.io/v1/deviceclasses/gpu"
    assert paths.node("n1") == "/api/v1/nodes/n1"
    assert paths.nodes() == "/api/v1/nodes"
    assert paths.pod("ns", "p") == "/api/v1/namespaces/ns/pods/p"
    assert paths.pods() == "/api/v1/pods"
    assert paths.priority_classes() == "/apis/scheduling.k8s.io/v1/priorityclasses"
    assert paths.pod_groups("scheduling.k8s.io/v1beta1") == "/apis/scheduling.k8s.io/v1beta1/podgroups"
    assert paths.resource_quotas() == "/api/v1/resourcequotas"
    assert paths.pod_disruption_budgets() == "/apis/policy/v1/poddisruptionbudgets"


@given(st.text(min_size=1))
def test_any_name_stays_one_segment(name: str):
    path = paths.resource_claim("ns", name)
    prefix = paths.resource_claims("ns") + "/"
    rest = path.removeprefix(prefix)
    assert path.startswith(prefix)
    assert not set(rest) & set("/?#")
    assert rest not in {".", ".."}
    assert unquote(rest) == name


def test_an_empty_name_is_refused():
    with pytest.raises(ValueError, match="needs a name"):
        paths.resource_claim("ns", "")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (paths.resource_claim("team-a", "train"), "resourceclaims team-a/train"),
        (paths.resource_claim_status("team-a", "train"), "resourceclaims team-a/train/status"),
        (paths.resource_slices(), "resourceslices"),
        (paths.resource_slice("x"), "resourceslices x"),
        (paths.resource_claims("ns"), "resourceclaims of namespace ns"),
        (paths.node("n1"), "nodes n1"),
        (paths.pod("ns", "p"), "pods ns/p"),
        ("/version", "/version"),
    ],
)
def test_describe(path: str, said: str):
    assert paths.describe(path) == said
