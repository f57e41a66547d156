"""The policy for a driver's configuration, on a real API server: what it lets through, and how it refuses the rest."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from dra_sdk.loader import load_driver
from dra_sdk.tools.configuration.policy import config_policy
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.control_plane import ControlPlane
from tests.cluster.harness.errors import HarnessError
from tests.tools.configuration.shapes import NAME, RIGHT, WRONG, ShapeDriver, entry

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


def refusal(server: Cluster | ControlPlane, found: JSON) -> str:
    """What the server says to the creation of an object, which it does not store; empty if it would store it."""
    path = f"{GROUP}/{found['apiVersion'].partition('/')[2]}/{COLLECTIONS[found['kind']]}?dryRun=All"
    try:
        server.api.create(path, found)
    except HarnessError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def policy(cluster: Cluster) -> Iterator[None]:
    """The policy, once the server uses it."""
    objects = config_policy(ShapeDriver().dra_driver_info())
    cluster.apply(*objects)
    probe = made("ResourceClaim", [entry(WRONG[0][1])])
    cluster.wait_until(lambda: refusal(cluster, probe), "the policy is in force")
    yield
    for each in objects:
        cluster.kubectl("delete", each["kind"], each["metadata"]["name"])


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


@pytest.mark.parametrize("name", ["cpu", "gpu", "gpu-amd", "nic"])
def test_the_server_takes_the_policies_of_the_reference_drivers(cluster: Cluster, name: str) -> None:
    """A defect of an expression is in the policy's status, and refuses claims of the driver."""
    info = load_driver(name).info
    objects = config_policy(info)
    cluster.apply(*objects)
    unknown = made("ResourceClaim", [entry({"apiVersion": "x/v1", "kind": "X"}, info.name)])
    cluster.wait_until(lambda: "apiVersion and kind must be" in refusal(cluster, unknown), "the policy is in force")
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{objects[0]['metadata']['name']}"
    cluster.wait_until(lambda: "typeChecking" in cluster.api.get(path).get("status", {}), "the server has checked it")
    for config in info.configs:
        default = {"apiVersion": config.api_version, "kind": config.kind}
        assert refusal(cluster, made("ResourceClaim", [entry(default, info.name)])) == ""
        misspelt = made("ResourceClaim", [entry({**default, "misspelt": 1}, info.name)])
        assert f"{config.kind}: unknown field; known: " in refusal(cluster, misspelt)
    assert cluster.api.get(path)["status"]["typeChecking"] == {}
    for each in objects:
        cluster.kubectl("delete", each["kind"], each["metadata"]["name"])
