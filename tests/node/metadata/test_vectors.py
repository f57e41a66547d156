"""Upstream's tables for device metadata, from the folder that DRA_SDK_VECTORS names or that lies beside the project.

Not every case can be told by its JSON: where a table made files or directories in code, the same files are made here
from the case's name. Error texts are ours; each case's text is matched with what we say of the same fault.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model.claim import ClaimRef
from dra_sdk.model.status import NetworkData
from dra_sdk.node.files import Files
from dra_sdk.node.metadata.directory import MetadataDirectory
from dra_sdk.node.metadata.document import KIND, VERSIONS
from dra_sdk.node.metadata.reading import read_file, read_metadata
from tests import vectors
from tests.node.metadata.devices import claim_files, prepared

OURS = {
    "no metadata objects found in stream": "is empty",
    "read metadata object from stream": "is not JSON",
    "decode metadata object": "apiVersion is None",
    "decode metadata.resource.k8s.io/v1alpha1": "metadata.resource.k8s.io/v1alpha1",
    "decode metadata.k8s.io/v99": "metadata.k8s.io/v99",
    "no compatible metadata version found in stream (unknown versions: metadata.k8s.io/v99)": (
        "no version that is known here, only metadata.k8s.io/v99"
    ),
    "no compatible metadata version found in stream (unknown versions: metadata.k8s.io/v99, metadata.k8s.io/v100)": (
        "no version that is known here, only metadata.k8s.io/v99, metadata.k8s.io/v100"
    ),
    "open metadata file": "cannot be read",
}


def cases(test):
    """The cases of one table, by name."""
    found = vectors.files(f"dra-lib-cases/{test}")
    return pytest.mark.parametrize(("name", "case"), [(name, content["case"]) for name, content in found.items()])


def as_upstream(document):
    """A document as the tables write one: with the fields of the version-neutral Go type."""
    fields = document.model_dump(mode="json", by_alias=True, exclude_none=True)
    requests = [
        {
            "Name": request["name"],
            "Devices": [
                {
                    "Driver": device["driver"],
                    "Pool": device["pool"],
                    "Name": device["name"],
                    "Attributes": device["attributes"] or None,
                    "NetworkData": device.get("networkData") and _without_empty(device["networkData"]),
                }
                for device in request["devices"]
            ],
        }
        for request in fields["requests"]
    ]
    return {**fields["metadata"], "PodClaimName": fields.get("podClaimName"), "Requests": requests or None}


def _without_empty(fields):
    return {key: value for key, value in fields.items() if value}


def expected_of(case):
    """What a case expects, whichever of the two shapes it was written in."""
    expected = case["expected"]
    if "kind" not in expected:
        return expected
    versioned = {"apiVersion": "metadata.resource.k8s.io/v1alpha1", "kind": KIND}
    assert {key: expected[key] for key in versioned} == versioned
    return as_upstream(read_metadata(json.dumps(expected)))


@cases("devicemetadata.TestDecodeMetadataFromStream")
def test_decode_metadata_from_stream(name, case):
    stream = base64.b64decode(case["streamInput"] or "")
    if case["expectError"]:
        with pytest.raises(InvalidObjectError) as error:
            read_metadata(stream)
        assert OURS[case["expectError"]] in str(error.value)
    else:
        assert as_upstream(read_metadata(stream)) == expected_of(case)


def document(driver="gpu.example.com", pool="worker-0", device="gpu-0", requests=("gpu",), **fields):
    """One object of a stream as the tables' helpers write it."""
    entry = {"driver": driver, "pool": pool, "name": device}
    if driver == "gpu.example.com" and "podClaimName" not in fields:
        entry["attributes"] = {"model": {"string": "LATEST-GPU-MODEL"}}
    about = {"name": "my-claim", "namespace": "default", "uid": "uid-1234", "generation": 1}
    listed = [{"name": name, "devices": [entry]} for name in requests]
    return json.dumps({"kind": KIND, "apiVersion": VERSIONS[1], "metadata": about, "requests": listed, **fields})


@cases("devicemetadata.TestReadMetadata")
def test_read_metadata(name, case, tmp_path):
    path = tmp_path / "metadata.json"
    if name == "valid-file":
        path.write_text(document())
        assert as_upstream(read_file(path)) == case["expected"]
        return
    if name == "error-includes-path":
        path.write_text("{}")
    with pytest.raises(InvalidObjectError) as error:
        read_file(path)
    assert str(path) in str(error.value)
    assert OURS.get(case["expectError"], "") in str(error.value)


DRIVER = "example.com"


def claim(case):
    about = {"namespace": "default", "name": "my-claim", "uid": "claim-uid-1234"}
    return {"metadata": about | {"annotations": case.get("claimAnnotations")}}


def devices(entries):
    """The devices of a case, each with the request that it names."""
    return [
        prepared(request, entry["PoolName"], entry["DeviceName"], *_metadata(entry["Metadata"] or {}))
        for entry in entries or ()
        for request in entry["Requests"]
    ]


def _metadata(fields):
    network = fields.get("NetworkData")
    attributes = {name: value["string"] for name, value in (fields.get("Attributes") or {}).items()}
    data = network and NetworkData(interface_name=network["interfaceName"], ips=network["ips"])
    return attributes, data


@cases("kubeletplugin.TestProcessPreparedClaim")
def test_process_prepared_claim(name, case, tmp_path):
    files = {each.request: each for each in claim_files(DRIVER, claim(case), devices(case["devices"]))}
    MetadataDirectory(DRIVER, tmp_path, Files()).write(files.values())
    edits = MetadataDirectory(DRIVER, tmp_path, Files()).mounts(files.values())
    assert len(files) == len(case["wantPaths"])
    for request, want in case["wantPaths"].items():
        base = request.partition("/")[0]
        (mount,) = edits[base].mounts
        assert mount.host_path == str(tmp_path / want["hostMetadataSuffix"])
        assert mount.container_path == want["containerPath"]
        assert {"ro", "bind"} <= set(mount.options)
        found = read_file(Path(mount.host_path))
        assert found.pod_claim_name == case["expectPodClaimName"]
        assert found.metadata.generation == 1
        (entry,) = (each for each in case["devices"] if request in each["Requests"])
        (device,) = as_upstream(found)["Requests"][0]["Devices"]
        given = entry["Metadata"] or {"Attributes": None, "NetworkData": None}
        assert [request.name for request in found.requests] == [request]
        assert (device["Pool"], device["Name"], device["Driver"]) == (entry["PoolName"], entry["DeviceName"], DRIVER)
        assert (device["Attributes"], device["NetworkData"]) == (given["Attributes"], given["NetworkData"])


@cases("kubeletplugin.TestCleanupClaim")
def test_cleanup_claim(name, case, tmp_path):
    directory = MetadataDirectory(DRIVER, tmp_path, Files())
    directory.write(claim_files(DRIVER, {"metadata": claim(case)["metadata"] | {"uid": case["uid"]}},
                                   devices(case["prepareDevices"])))  # fmt: skip
    for _ in range(2 if case["preCleanup"] else 1):
        directory.remove(ClaimRef(case["claimNamespace"], case["claimName"], case["uid"]))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
