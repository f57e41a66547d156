from __future__ import annotations

import pytest

from dra_sdk.errors import ClaimError
from dra_sdk.node.metadata.layout import (
    POD_CLAIM_ANNOTATION,
    ClaimIdentity,
    checked_base_request,
    claim_directory,
    container_path,
    host_path,
    identify,
)

CLAIM = ClaimIdentity("default", "my-claim", "uid-1")
ROOT = "/var/run/kubernetes.io/dra-device-attributes"
HOSTILE = ["", ".", "..", "../x", "a/../../etc", "/etc", "a/b/c", "A", "a_b", "a\x00", "a\n", "-a", "a" * 64, "\ud800"]


def claim(annotations=None, **metadata):
    return {
        "metadata": {"namespace": "default", "name": "my-claim", "uid": "uid-1", "annotations": annotations} | metadata
    }


def test_the_identity_is_read_from_the_api_object():
    assert identify(claim()) == CLAIM
    assert identify(claim({POD_CLAIM_ANNOTATION: "my-gpu"})).pod_claim == "my-gpu"
    assert identify(claim({POD_CLAIM_ANNOTATION: "", "other": "x"})).pod_claim is None
    assert str(CLAIM) == "claim default/my-claim (uid-1)"


@pytest.mark.parametrize("name", [each for each in HOSTILE if each])
def test_a_hostile_pod_claim_annotation_is_refused(name):
    with pytest.raises(ClaimError, match=r"annotation resource\.kubernetes\.io/pod-claim-name: must be a DNS label"):
        identify(claim({POD_CLAIM_ANNOTATION: name}))


@pytest.mark.parametrize("name", [*(each for each in HOSTILE if each != "a" * 64), "a" * 254])
def test_a_hostile_claim_name_is_refused(name):
    with pytest.raises(ClaimError, match=r"metadata\.name: must be"):
        identify(claim(name=name))


@pytest.mark.parametrize("namespace", [*HOSTILE, "a.b"])
def test_a_hostile_namespace_is_refused(namespace):
    with pytest.raises(ClaimError, match=r"metadata\.namespace: must be"):
        identify(claim(namespace=namespace))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"uid": ""}, "metadata.uid must have 1 to 128 bytes, is ''"),
        ({"uid": "u" * 129}, "metadata.uid must have 1 to 128 bytes"),
        ({"uid": 7}, "metadata.uid must be a string, is 7"),
        ({"name": ["x"]}, "metadata.name must be a string"),
        ({"annotations": {POD_CLAIM_ANNOTATION: 7}}, "must be a string, is 7"),
    ],
)
def test_what_is_no_claim_is_refused(fields, message):
    with pytest.raises(ClaimError) as error:
        identify(claim(**fields))
    assert message in str(error.value)


def test_the_base_of_a_request_is_what_stands_before_the_slash():
    assert checked_base_request("gpu") == checked_base_request("gpu/big") == "gpu"


@pytest.mark.parametrize("request_name", [*HOSTILE, "gpu/", "/gpu", "gpu/..", "gpu/a/b", "gpu/A"])
def test_a_hostile_request_is_refused(request_name):
    with pytest.raises(ClaimError, match=r"request .*: must be a DNS label"):
        checked_base_request(request_name)


def test_the_paths_are_those_that_readers_expect():
    assert host_path("default", "my-claim", "gpu/big") == "dra-device-metadata/default_my-claim/gpu/metadata.json"
    path = f"{ROOT}/resourceclaims/my-claim/gpu/gpu.example.com-metadata.json"
    assert container_path("gpu.example.com", CLAIM, "gpu/big") == path
    made = ClaimIdentity("default", "pod-my-gpu-x7k2p", "uid-1", "my-gpu")
    path = f"{ROOT}/resourceclaimtemplates/my-gpu/gpu/gpu.example.com-metadata.json"
    assert container_path("gpu.example.com", made, "gpu") == path
    path = container_path("gpu.example.com", ClaimIdentity("default", "my.claim", "uid-1"), "gpu/big")
    assert path == f"{ROOT}/resourceclaims/my.claim/gpu/gpu.example.com-metadata.json"


def test_a_hostile_driver_name_is_refused():
    with pytest.raises(ClaimError, match="the driver's name: must be"):
        container_path("../gpu", CLAIM, "gpu")


def test_the_longest_names_still_fit_a_file_system_and_stay_apart(tmp_path):
    names = ["a" * 252 + "b", "a" * 252 + "c", "a" * 253]
    directories = {claim_directory(namespace, name) for namespace in ("n" * 63, "m" * 63) for name in names}
    assert len(directories) == 6
    for directory in directories:
        (tmp_path / directory).mkdir()
    longest = container_path("d" * 63, ClaimIdentity("n" * 63, "a" * 253, "u"), "r" * 63)
    assert max(len(part) for part in longest.split("/")) <= 255


def test_claims_whose_joined_names_look_alike_have_directories_of_their_own():
    assert claim_directory("a", "b-c") != claim_directory("a-b", "c")
