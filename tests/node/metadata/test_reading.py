from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk.errors import InvalidObjectError
from dra_sdk.node.metadata.document import VERSIONS
from dra_sdk.node.metadata.reading import read_file, read_metadata

V1BETA1, V1ALPHA1 = VERSIONS


def document(version=V1BETA1, driver="gpu.example.com", **fields):
    device = {"driver": driver, "pool": "node-a", "name": "gpu-0", "attributes": {"model": {"string": "A100"}}}
    about = {"name": "my-claim", "namespace": "default", "uid": "uid-1", "generation": 1}
    body = {"metadata": about, "requests": [{"name": "gpu", "devices": [device]}]}
    return {"kind": "DeviceMetadata", "apiVersion": version} | body | fields


def text(*documents):
    return "".join(json.dumps(each) + "\n" for each in documents)


def test_the_first_known_version_counts_whatever_follows():
    newer = {"kind": "DeviceMetadata", "apiVersion": "metadata.resource.k8s.io/v9", "shape": ["unknown"]}
    found = read_metadata(text(newer, document(V1ALPHA1, podClaimName="first"), document(V1BETA1)) + "{broken")
    assert found.pod_claim_name == "first"
    assert found.requests[0].devices[0].attributes["model"].string == "A100"


def test_bytes_and_text_read_alike():
    assert read_metadata(text(document()).encode()) == read_metadata(text(document()))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        (" \n\t", "is empty"),
        ("{", "is not JSON: line 1"),
        ("{}", "apiVersion is None"),
        ("[]", "holds a list, want objects"),
        ("null", "holds a NoneType"),
        ("NaN", "NaN is no number"),
        ("]", "is not JSON"),
        (b"\xff\xfe", "can't decode byte"),
        ("[" * 100_000, "is nested too deeply"),
        (text({"kind": "DeviceMetadata"}), "apiVersion is None"),
        (text(document("a/b/c")), "apiVersion is 'a/b/c'"),
        (text({"apiVersion": "example.com/v9"}), "object of example.com/v9 whose kind is None"),
        (text(document(kind="Pod")), "that is a Pod, want DeviceMetadata"),
        (text(document(requests="gpu")), "cannot be understood: requests"),
        (text(document("x/v8"), document("x/v9")), "has no version that is known here, only x/v8, x/v9"),
        (text(document("x/v9")) + "{", "is not JSON"),
        (text(document("x/v9"), document(requests=[{}])), "cannot be understood: requests.0.name"),
    ],
)
def test_anything_else_is_an_error_that_names_the_source(content, message):
    with pytest.raises(InvalidObjectError) as error:
        read_metadata(content, "the file")
    assert str(error.value).startswith("the file: ")
    assert message in str(error.value)


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_garbage_never_gets_further_than_an_error(content):
    with pytest.raises(InvalidObjectError):
        read_metadata(content)


def test_a_file_is_named_when_it_cannot_be_read(tmp_path):
    with pytest.raises(InvalidObjectError, match=r"missing\.json: cannot be read: No such file or directory"):
        read_file(tmp_path / "missing.json")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(InvalidObjectError, match=r"bad\.json: is not JSON"):
        read_file(tmp_path / "bad.json")
