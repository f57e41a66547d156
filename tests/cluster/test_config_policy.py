"""The policy for a driver's configuration, on a real API server: what it lets through, and how it refuses the rest."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dra_sdk.loader import load_driver
from dra_sdk.tools.configuration.policy import config_policy
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.errors import HarnessError
from tests.tools.configuration.shapes import (
    NAME,
    PLATES,
    RIGHT,
    RIGHT_PLATES,
    WRONG,
    WRONG_PLATES,
    PlateDriver,
    ShapeDriver,
    entry,
)

JSON = dict[str, Any]
GROUP = "/apis/resource.k8s.io"
COLLECTIONS = {
    "ResourceClaim": "namespaces/default/resourceclaims",
    "ResourceClaimTemplate": "namespaces/default/resourceclaimtemplates",
    "DeviceClass": "deviceclasses",
}


def made(kind: str, configs: list[JSON], version: str = "v1", name: str = "checked") -> JSON:
    """An object of this kind with these entries."""
    exactly = {"deviceClassName": "shape"}
    request = {"name": "r", **(exactly if version == "v1beta1" else {"exactly": exactly})}
    spec: JSON = {"devices": {"requests": [request], "config": configs}}
    if kind == "DeviceClass":
        spec = {"config": configs}
    head = {"apiVersion": f"resource.k8s.io/{version}", "kind": kind, "metadata": {"name": name}}
    return {**head, "spec": {"spec": spec} if kind == "ResourceClaimTemplate" else spec}


def refusal(cluster: Cluster, found: JSON) -> str:
    """What the server says to the creation of an object, which it does not store; empty if it would store it."""
    path = f"{GROUP}/{found['apiVersion'].partition('/')[2]}/{COLLECTIONS[found['kind']]}?dryRun=All"
    try:
        cluster.api.create(path, found)
    except HarnessError as error:
        return str(error)
    return ""


@contextmanager
def in_force(cluster: Cluster, objects: list[JSON], refused: JSON) -> Iterator[None]:
    """Apply a policy; wait until the server refuses an object by it; remove it in the end."""
    cluster.apply(*objects)
    cluster.wait_until(lambda: refusal(cluster, refused), "the policy is in force")
    yield
    for each in objects:
        cluster.kubectl("delete", each["kind"], each["metadata"]["name"])


def type_checking(cluster: Cluster, objects: list[JSON]) -> JSON:
    """What the server says about the types of a policy; a defect is told here, and refuses claims of the driver."""
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{objects[0]['metadata']['name']}"
    cluster.wait_until(lambda: "typeChecking" in cluster.api.get(path).get("status", {}), "the server has checked it")
    found: JSON = cluster.api.get(path)["status"]["typeChecking"]
    return found


@pytest.fixture(scope="module")
def policy(cluster: Cluster) -> Iterator[None]:
    """The policy, once the server uses it."""
    with in_force(cluster, config_policy(ShapeDriver().dra_driver_info()), made("ResourceClaim", [entry(WRONG[0][1])])):
        yield


def test_a_wrong_claim_of_before_the_policy_can_still_be_changed_and_deleted(
    cluster: Cluster, request: pytest.FixtureRequest
) -> None:
    """The first test here, as there is no policy yet. A finalizer must go, and a class may get a label."""
    wrong = [made(kind, [entry(WRONG[4][1])], name="old") for kind in ("ResourceClaim", "DeviceClass")]
    wrong[0]["metadata"]["finalizers"] = ["example.com/of-this-test"]
    cluster.apply(*wrong)
    request.getfixturevalue("policy")
    cluster.kubectl("label", "deviceclass/old", "seen=yes")
    cluster.kubectl("patch", "resourceclaim/old", "--type=merge", "--patch", '{"metadata": {"finalizers": null}}')
    cluster.kubectl("delete", "resourceclaim", "old", "--wait=true")
    wrong[1]["spec"]["config"][0]["opaque"]["parameters"]["small"] = 11
    with pytest.raises(Exception, match="small must be an integer"):
        cluster.apply(wrong[1])
    cluster.kubectl("delete", "deviceclass", "old")


@pytest.mark.usefixtures("policy")
@pytest.mark.parametrize("kind", COLLECTIONS)
def test_the_server_says_of_each_configuration_what_the_driver_says(cluster: Cluster, kind: str) -> None:
    assert {refusal(cluster, made(kind, [entry(each)])) for each in RIGHT} == {""}
    for sentence, parameters in WRONG:
        said = refusal(cluster, made(kind, [entry(parameters)]))
        assert json.dumps(f"configuration of driver {NAME}: {sentence}", ensure_ascii=False)[1:-1] in said


@pytest.mark.usefixtures("policy")
def test_every_version_of_the_api_is_checked(cluster: Cluster) -> None:
    served = [each["version"] for each in cluster.api.get(GROUP)["versions"]]
    versions = [each for each in served if each in {"v1", "v1beta2", "v1beta1"}]
    assert "v1" in versions
    for version, kind in itertools.product(versions, COLLECTIONS):
        assert "small must be" in refusal(cluster, made(kind, [entry(WRONG[4][1])], version))
        assert refusal(cluster, made(kind, [entry(RIGHT[1])], version)) == ""


@pytest.mark.usefixtures("policy")
def test_all_wrong_fields_are_told_and_other_drivers_are_not_read(cluster: Cluster) -> None:
    said = refusal(cluster, made("ResourceClaim", [entry(WRONG[4][1]), entry(WRONG[-2][1])]))
    assert "small must be" in said
    others = [entry({"any": "thing"}, "other.example.com")]
    assert {refusal(cluster, made(kind, others)) for kind in COLLECTIONS} == {""}


def test_the_server_says_by_rules_what_the_code_of_the_class_says(cluster: Cluster) -> None:
    objects = config_policy(PlateDriver().dra_driver_info())
    with in_force(cluster, objects, made("ResourceClaim", [entry(WRONG_PLATES[0][1], PLATES)])):
        for kind in COLLECTIONS:
            assert {refusal(cluster, made(kind, [entry(each, PLATES)])) for each in RIGHT_PLATES} == {""}
            for sentence, parameters in WRONG_PLATES:
                both = [entry(RIGHT_PLATES[0], PLATES), entry(parameters, PLATES)]
                assert f"configuration of driver {PLATES}: {sentence}" in refusal(cluster, made(kind, both))
        assert type_checking(cluster, objects) == {}


@pytest.mark.parametrize("name", ["cpu", "gpu", "gpu-amd", "nic"])
def test_the_server_takes_the_policies_of_the_reference_drivers(cluster: Cluster, name: str) -> None:
    info = load_driver(name).info
    objects = config_policy(info)
    with in_force(cluster, objects, made("ResourceClaim", [entry({"apiVersion": "x/v1", "kind": "X"}, info.name)])):
        for config in info.configs:
            default = {"apiVersion": config.api_version, "kind": config.kind}
            assert refusal(cluster, made("ResourceClaim", [entry(default, info.name)])) == ""
            misspelt = made("ResourceClaim", [entry({**default, "misspelt": 1}, info.name)])
            assert f"{config.kind}: unknown field; known: " in refusal(cluster, misspelt)
        assert type_checking(cluster, objects) == {}


def test_a_rule_of_the_network_driver_is_cheap_enough_for_the_largest_claim(cluster: Cluster) -> None:
    """A claim has 32 entries of 10 KiB. The server counts what expressions cost, up to a limit."""
    (config,) = load_driver("nic").info.configs
    routes = [{"destination": f"10.0.{number}.0/24", "gateway": "10.0.0.1"} for number in range(180)]
    largest = {"apiVersion": config.api_version, "kind": config.kind, "routes": routes}
    assert len(json.dumps(largest)) > 9_000
    wrong = {**largest, "routes": [*routes, {"destination": "::/0", "gateway": "10.0.0.1"}]}
    asked = [
        made("ResourceClaim", [*[entry(largest, "dra.net")] * 31, entry(last, "dra.net")]) for last in (largest, wrong)
    ]
    with in_force(cluster, config_policy(load_driver("nic").info), asked[1]):
        assert refusal(cluster, asked[0]) == ""
        assert "must be of one IP family" in refusal(cluster, asked[1])
