from __future__ import annotations

import pytest

from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.resources import CATALOG
from dra_sdk.tools.simulator.selectors import parse
from dra_sdk.tools.simulator.statuses import StatusError
from tests.tools.simulator.conftest import slice_object


@pytest.fixture
def slices(local: LocalClient) -> LocalClient:
    for name, driver, node, labels in (
        ("a", "gpu.example.com", "node-1", {"tier": "one", "old": ""}),
        ("b", "gpu.example.com", "node-2", {"tier": "two"}),
        ("c", "nic.example.com", "node-1", {}),
    ):
        wanted = slice_object(name, driver=driver, node=node)
        wanted["metadata"]["labels"] = labels
        local.create("resourceslices", wanted)
    everywhere = slice_object("d")
    del everywhere["spec"]["nodeName"]
    local.create("resourceslices", everywhere)
    return local


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ("", "abcd"),
        ("metadata.name=b", "b"),
        ("spec.nodeName=node-1", "ac"),
        ("spec.nodeName==node-1,spec.driver=gpu.example.com", "a"),
        ("spec.nodeName!=node-1", "bd"),
        ("spec.nodeName=", "d"),
        ("spec.pool.name=node-2", "b"),
        ("spec.driver=none.example.com", ""),
    ],
)
def test_field_selectors(slices: LocalClient, fields: str, names: str) -> None:
    assert [entry["metadata"]["name"] for entry in slices.list("resourceslices", fields=fields)] == list(names)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ("tier=one", "a"),
        ("tier==two", "b"),
        ("tier!=one", "bcd"),
        ("tier", "ab"),
        ("!tier", "cd"),
        ("old", "a"),
        ("tier in (one, two)", "ab"),
        ("tier notin (one)", "bcd"),
        ("tier in (one,two),!old", "b"),
    ],
)
def test_label_selectors(slices: LocalClient, labels: str, names: str) -> None:
    assert [entry["metadata"]["name"] for entry in slices.list("resourceslices", labels=labels)] == list(names)


@pytest.mark.parametrize(
    ("plural", "fields", "message"),
    [
        (
            "resourceslices",
            "spec.nodeSelector=x",
            "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: spec.nodeSelector",
        ),
        (
            "resourceclaims",
            "spec.x=y",
            '"spec.x" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        ("resourceslices", "spec.driver", "invalid selector"),
    ],
)
def test_an_unknown_field_is_a_bad_request(plural: str, fields: str, message: str) -> None:
    with pytest.raises(StatusError) as caught:
        parse(CATALOG[plural], fields=fields)
    assert (caught.value.code, caught.value.reason) == (400, "BadRequest")
    assert message in caught.value.message


def test_an_unreadable_label_selector_is_a_bad_request() -> None:
    with pytest.raises(StatusError, match="unable to parse requirement"):
        parse(CATALOG["pods"], labels="a in b")


def test_an_older_server_does_not_know_the_pool() -> None:
    older = CATALOG["resourceslices"].without_field_selector("spec.pool.name")
    with pytest.raises(StatusError, match=r"spec\.pool\.name"):
        parse(older, fields="spec.pool.name=p")
    assert parse(older, fields="spec.driver=d")
