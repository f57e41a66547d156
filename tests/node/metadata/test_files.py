from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk import ContainerEdits, Mount
from dra_sdk.errors import ClaimError, InvalidObjectError
from dra_sdk.model.status import NetworkData
from dra_sdk.node.metadata.document import VERSIONS
from dra_sdk.node.metadata.encoding import MetadataDevice
from dra_sdk.node.metadata.files import MetadataFile, claim_metadata, metadata_edits, updated_metadata
from dra_sdk.node.metadata.layout import POD_CLAIM_ANNOTATION
from dra_sdk.node.metadata.reading import read_metadata
from dra_sdk.wire.cdi import claim_spec

DRIVER = "gpu.example.com"
CLAIM = {"metadata": {"namespace": "default", "name": "my-claim", "uid": "uid-1"}}


def device(request="gpu", name="gpu-0", **attributes):
    return MetadataDevice(request, "node-a", name, attributes)


def names(document):
    return {request.name: [each.name for each in request.devices] for request in document.requests}


def test_each_request_has_a_file_with_its_own_devices():
    files = claim_metadata(DRIVER, CLAIM, [device(), device("nic", "vf-0"), device(name="gpu-1")])
    assert [each.request for each in files] == ["gpu", "nic"]
    assert [names(read_metadata(each.content)) for each in files] == [{"gpu": ["gpu-0", "gpu-1"]}, {"nic": ["vf-0"]}]
    about = read_metadata(files[0].content).metadata
    assert (about.namespace, about.name, about.uid, about.generation) == ("default", "my-claim", "uid-1", 1)


def test_two_subrequests_of_one_request_share_its_file_and_both_are_in_it():
    (file,) = claim_metadata(
        DRIVER, CLAIM, [device("gpu/big"), device("gpu/small", "gpu-1"), device("gpu/big", "gpu-2")]
    )
    assert (file.request, file.path) == ("gpu", "dra-device-metadata/default_my-claim/gpu/metadata.json")
    assert names(read_metadata(file.content)) == {"gpu/big": ["gpu-0", "gpu-2"], "gpu/small": ["gpu-1"]}


def test_a_claim_without_devices_has_no_files():
    assert claim_metadata(DRIVER, CLAIM, []) == []


def test_the_name_in_the_pod_reaches_the_document_and_the_path():
    claim = {"metadata": CLAIM["metadata"] | {"annotations": {POD_CLAIM_ANNOTATION: "my-gpu"}}}
    (file,) = claim_metadata(DRIVER, claim, [device()])
    assert read_metadata(file.content).pod_claim_name == "my-gpu"
    assert "/resourceclaimtemplates/my-gpu/gpu/" in file.container_path


def test_only_the_versions_asked_for_are_written():
    (file,) = claim_metadata(DRIVER, CLAIM, [device()], VERSIONS[1:])
    assert "v1alpha1" in file.content
    assert "v1beta1" not in file.content


def test_hostile_claims_and_devices_are_refused():
    with pytest.raises(ClaimError):
        claim_metadata(DRIVER, {"metadata": CLAIM["metadata"] | {"name": "../etc"}}, [device()])
    with pytest.raises(ClaimError):
        claim_metadata(DRIVER, CLAIM, [device("../gpu")])
    with pytest.raises(InvalidObjectError):
        claim_metadata(DRIVER, CLAIM, [device(name="../gpu")])


def test_an_update_replaces_one_request_and_counts():
    (file,) = claim_metadata(DRIVER, CLAIM, [device("gpu/big"), device("gpu/small", "gpu-1", model="x")])
    before = read_metadata(file.content)
    network = NetworkData(interface_name="eth0")
    changed = MetadataDevice("gpu/big", "node-a", "gpu-0", {"model": "A100"}, network)
    after = updated_metadata(DRIVER, before, "gpu/big", [changed])
    assert (after.request, after.path, after.container_path) == (file.request, file.path, file.container_path)
    document = read_metadata(after.content)
    assert document.metadata == before.metadata.model_copy(update={"generation": 2})
    assert document.request("gpu/small") == before.request("gpu/small")
    (written,) = document.request("gpu/big").devices
    assert written.attributes["model"].value == "A100"
    assert written.network_data.interface_name == "eth0"
    assert read_metadata(updated_metadata(DRIVER, document, "gpu/big", []).content).metadata.generation == 3


def test_an_update_keeps_the_name_in_the_pod():
    claim = {"metadata": CLAIM["metadata"] | {"annotations": {POD_CLAIM_ANNOTATION: "my-gpu"}}}
    (file,) = claim_metadata(DRIVER, claim, [device()])
    after = updated_metadata(DRIVER, read_metadata(file.content), "gpu", [device(name="gpu-1")])
    assert after.container_path == file.container_path
    assert read_metadata(after.content).pod_claim_name == "my-gpu"


def test_an_update_of_what_was_not_prepared_is_refused():
    (file,) = claim_metadata(DRIVER, CLAIM, [device("gpu/big")])
    document = read_metadata(file.content)
    with pytest.raises(ClaimError, match="request gpu/small not found in its metadata, which has gpu/big"):
        updated_metadata(DRIVER, document, "gpu/small", [device("gpu/small")])
    with pytest.raises(ClaimError, match="device node-a/gpu-0 belongs to request nic"):
        updated_metadata(DRIVER, document, "gpu/big", [device("nic")])


def test_each_request_gets_a_read_only_bind_mount_that_cdi_takes():
    files = claim_metadata(DRIVER, CLAIM, [device(), device("nic", "vf-0")])
    edits = metadata_edits(files, Path("/var/lib/kubelet/plugins/gpu.example.com"))
    assert edits["gpu"] == ContainerEdits(
        mounts=(
            Mount(
                "/var/lib/kubelet/plugins/gpu.example.com/dra-device-metadata/default_my-claim/gpu/metadata.json",
                "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/my-claim/gpu/gpu.example.com-metadata.json",
                options=("ro", "bind"),
            ),
        )
    )
    assert list(edits) == ["gpu", "nic"]
    spec = claim_spec(f"{DRIVER}/device", {f"claim-uid-1_{request}": each for request, each in edits.items()})
    assert [each["name"] for each in spec["devices"]] == ["claim-uid-1_gpu", "claim-uid-1_nic"]


def test_a_file_is_plain_text_that_can_be_remembered():
    (file,) = claim_metadata(DRIVER, CLAIM, [device(model="é")])
    assert MetadataFile(**{name: str(getattr(file, name)) for name in MetadataFile.__slots__}) == file
