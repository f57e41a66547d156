from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from dra_sdk import AllocatedDevice, Claim, ContainerEdits, Device, Mount, Node
from dra_sdk.errors import ClaimError, InvalidObjectError
from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.files import Files
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.metadata.directory import (
    MetadataDirectory,
    MetadataFile,
)
from dra_sdk.node.metadata.layout import POD_CLAIM_ANNOTATION
from dra_sdk.node.metadata.reading import read_metadata
from dra_sdk.wire.cdi import claim_spec
from tests.node.metadata.devices import claim_files, prepared

DRIVER = "gpu.example.com"


def files(uid="uid-1", name="my-claim", requests=("gpu",)):
    claim = {"metadata": {"namespace": "default", "name": name, "uid": uid}}
    return claim_files(DRIVER, claim, [prepared(each, "node-a", "gpu-0") for each in requests])


@pytest.fixture
def directory(tmp_path):
    return MetadataDirectory(DRIVER, tmp_path, Files())


@pytest.fixture
def root(tmp_path):
    return tmp_path / "dra-device-metadata"


def present(root):
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_files_are_written_where_they_say_and_anybody_can_read_them(directory, tmp_path, root):
    written = files(requests=("gpu", "nic"))
    directory.write(written)
    assert present(root) == ["default_my-claim/gpu/metadata.json", "default_my-claim/nic/metadata.json"]
    for each in written:
        path = tmp_path / each.path
        assert path.read_text() == each.content
        assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_write_that_fails_names_the_file(tmp_path):
    (tmp_path / "dra-device-metadata").write_text("in the way")
    with pytest.raises(ClaimError, match=r"cannot write device metadata .*/default_my-claim/gpu/metadata\.json: "):
        MetadataDirectory(DRIVER, tmp_path, Files()).write(files())


@pytest.mark.parametrize("broken", ["create", "write", "rename"])
def test_a_file_is_the_old_or_the_new_one_whole_whatever_step_fails(tmp_path, root, broken):
    (file,) = files()
    MetadataDirectory(DRIVER, tmp_path, Files()).write([file])

    def fail(step, _path):
        if step == broken:
            raise OSError(28, "No space left on device")

    with pytest.raises(ClaimError, match="No space left on device"):
        MetadataDirectory(DRIVER, tmp_path, Files(fail)).write(files(uid="uid-2"))
    assert (tmp_path / file.path).read_text() == file.content
    assert present(root) == ["default_my-claim/gpu/metadata.json"]


def test_what_was_lost_is_written_again_and_what_is_readable_stays(directory, tmp_path):
    remembered = files(requests=("gpu", "nic"))
    directory.write(remembered)
    spaced = remembered[0].content.replace("\n", " \n")
    (tmp_path / remembered[0].path).write_text(spaced)
    (tmp_path / remembered[1].path).unlink()
    directory.ensure("uid-1", remembered)
    assert (tmp_path / remembered[0].path).read_text() == spaced
    assert (tmp_path / remembered[1].path).read_text() == remembered[1].content


def test_removing_takes_the_whole_claim_and_may_be_repeated(directory, root):
    directory.write(files(requests=("gpu", "nic")))
    directory.write(files(name="other"))
    for _ in range(2):
        directory.remove(ClaimRef("default", "my-claim", "uid-1"))
        assert [path.name for path in root.iterdir()] == ["default_other"]


def test_removing_what_never_was_is_fine(directory, root):
    directory.remove(ClaimRef("default", "my-claim", "uid-1"))
    assert present(root) == []


def test_an_older_claim_of_the_same_name_does_not_take_the_newer_ones_files(directory, root):
    directory.write(files(uid="new"))
    directory.remove(ClaimRef("default", "my-claim", "old"))
    assert present(root) == ["default_my-claim/gpu/metadata.json"]


def test_damaged_files_and_leftovers_of_a_crash_are_removed(directory, tmp_path, root):
    (file,) = files()
    directory.write([file])
    (tmp_path / file.path).write_text("{")
    (root / "default_my-claim" / "gpu" / ".tmp-x").write_text("half")
    directory.remove(ClaimRef("default", "my-claim", "uid-1"))
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(("namespace", "name"), [("..", "x"), ("default", ".."), ("default", "a/b"), ("", "x")])
def test_hostile_names_reach_no_path(directory, tmp_path, namespace, name):
    keep = tmp_path / "precious"
    keep.write_text("x")
    directory.remove(
        ClaimRef(namespace, name, "uid-1")
    )  # no API server has such a claim, so there is nothing to remove
    assert keep.exists()


def test_a_removal_that_fails_names_the_directory(directory, root, monkeypatch):
    directory.write(files())

    def fail(_path):
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr("dra_sdk.node.metadata.directory.shutil.rmtree", fail)
    with pytest.raises(ClaimError, match=r"cannot remove device metadata .*/default_my-claim: Device or resource busy"):
        directory.remove(ClaimRef("default", "my-claim", "uid-1"))


def test_a_sweep_keeps_the_claims_that_are_held(directory, root):
    for uid, name in (("uid-a", "a"), ("uid-b", "b"), ("uid-c", "c" * 253)):
        directory.write(files(uid, name))
    directory.sweep({"uid-a", "uid-c"}.__contains__)
    assert sorted(path.name[:9] for path in root.iterdir()) == ["default_a", "default_c"]
    directory.sweep(lambda uid: False)
    assert list(root.iterdir()) == []


def test_a_sweep_spares_what_another_process_works_on(directory, root, tmp_path):
    """Its checkpoint comes last if a driver has nothing to undo, and before a file there is only a directory."""
    locks, others = NamedLocks(tmp_path / "locks"), NamedLocks(tmp_path / "locks")
    for uid, name in (("uid-a", "a"), ("uid-b", "b")):
        directory.write(files(uid, name))
    (root / "default_c/gpu").mkdir(parents=True)
    with others.hold(["claim/uid-a"]):
        directory.sweep(lambda uid: False, locks)
    assert sorted(path.name for path in root.iterdir()) == ["default_a", "default_c"]
    locks.close()
    others.close()


@pytest.mark.parametrize("content", [None, "{", ""])
def test_what_is_lost_or_damaged_is_written_again(directory, tmp_path, content):
    remembered = files()
    directory.write(remembered)
    path = tmp_path / remembered[0].path
    path.unlink()
    if content is not None:
        path.write_text(content)
    directory.ensure("uid-1", remembered)
    assert path.read_text() == remembered[0].content


def test_files_that_do_not_tell_their_claim_are_swept(directory, root):
    (root / "default_b/gpu").mkdir(parents=True)
    (root / "default_b/gpu/metadata.json").write_text("{")
    directory.sweep(lambda uid: True)
    assert list(root.iterdir()) == []


def test_a_sweep_of_a_fresh_node_is_fine(directory, tmp_path):
    directory.sweep(lambda uid: True)
    assert list(tmp_path.iterdir()) == []


DRIVER = "gpu.example.com"
CLAIM = {"metadata": {"namespace": "default", "name": "my-claim", "uid": "uid-1"}}


def device(request="gpu", name="gpu-0", **attributes):
    return prepared(request, "node-a", name, attributes)


def names(document):
    return {request.name: [each.name for each in request.devices] for request in document.requests}


def test_each_request_has_a_file_with_its_own_devices():
    files = claim_files(DRIVER, CLAIM, [device(), device("nic", "vf-0"), device(name="gpu-1")])
    assert [each.request for each in files] == ["gpu", "nic"]
    assert [names(read_metadata(each.content)) for each in files] == [{"gpu": ["gpu-0", "gpu-1"]}, {"nic": ["vf-0"]}]
    about = read_metadata(files[0].content).metadata
    assert (about.namespace, about.name, about.uid, about.generation) == ("default", "my-claim", "uid-1", 1)


def test_two_subrequests_of_one_request_share_its_file_and_both_are_in_it():
    (file,) = claim_files(DRIVER, CLAIM, [device("gpu/big"), device("gpu/small", "gpu-1"), device("gpu/big", "gpu-2")])
    assert (file.request, file.path) == ("gpu", "dra-device-metadata/default_my-claim/gpu/metadata.json")
    assert names(read_metadata(file.content)) == {"gpu/big": ["gpu-0", "gpu-2"], "gpu/small": ["gpu-1"]}


def test_a_claim_without_devices_has_no_files():
    assert claim_files(DRIVER, CLAIM, []) == []


def test_the_name_in_the_pod_reaches_the_document_and_the_path():
    claim = {"metadata": CLAIM["metadata"] | {"annotations": {POD_CLAIM_ANNOTATION: "my-gpu"}}}
    (file,) = claim_files(DRIVER, claim, [device()])
    assert read_metadata(file.content).pod_claim_name == "my-gpu"
    assert "/resourceclaimtemplates/my-gpu/gpu/" in file.container_path


def test_hostile_claims_and_devices_are_refused():
    with pytest.raises(ClaimError):
        claim_files(DRIVER, {"metadata": CLAIM["metadata"] | {"name": "../etc"}}, [device()])
    with pytest.raises(ClaimError):
        claim_files(DRIVER, CLAIM, [device("../gpu")])
    with pytest.raises(InvalidObjectError):
        claim_files(DRIVER, CLAIM, [device(name="../gpu")])


def test_each_request_gets_a_read_only_bind_mount_that_cdi_takes():
    files = claim_files(DRIVER, CLAIM, [device(), device("nic", "vf-0")])
    edits = MetadataDirectory(DRIVER, Path("/var/lib/kubelet/plugins/gpu.example.com"), Files()).mounts(files)
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
    (file,) = claim_files(DRIVER, CLAIM, [device(model="é")])
    assert MetadataFile(**{name: str(getattr(file, name)) for name in MetadataFile.__slots__}) == file


# -- claims of a driver


def attributed(**attributes):
    return Device("gpu-0", attributes=attributes)


def built(directory, published, **metadata):
    """The attributes in the file of a claim for a published device, to which the driver added `metadata`."""
    ref = {"namespace": "default", "name": "my-claim", "uid": "uid-1"}
    allocated = AllocatedDevice("gpu", "node-a", "gpu-0", None, device=published)
    claim = Claim(**ref, node=Node("node-a"), devices=[allocated], raw={"metadata": ref})
    (file,) = directory.build(claim, [allocated.prepared(metadata=metadata)])
    return json.loads(file.content.splitlines()[0])["requests"][0]["devices"][0].get("attributes", {})


def test_a_file_has_the_published_attributes_and_those_that_the_driver_added(directory):
    published = attributed(model="A", slots=2)
    for cpuset in ("0", "1"):
        expected = {"model": {"string": "A"}, "slots": {"int": 2}, "cpuset": {"string": cpuset}}
        assert built(directory, published, cpuset=cpuset) == expected
    assert built(directory, published) == {"model": {"string": "A"}, "slots": {"int": 2}}
    assert built(directory, attributed(model="B")) == {"model": {"string": "B"}}, "it was published again"
    assert built(directory, attributed()) == {}


def test_what_the_driver_adds_replaces_a_published_attribute(directory):
    assert built(directory, attributed(model="A"), model=7) == {"model": {"int": 7}}


def test_published_and_added_attributes_together_have_the_limits_of_a_device(directory):
    published = attributed(**{f"a{number}": number for number in range(31)})
    assert len(built(directory, published, last=1)) == 32
    with pytest.raises(InvalidObjectError, match="must have at most 32 attributes and capacities together, has 33"):
        built(directory, published, one=1, more=2)


def test_a_changed_file_of_the_claim_is_removed_and_a_newer_claims_stays(directory, tmp_path, root):
    ref = ClaimRef("default", "my-claim", "uid-1")
    written = files(requests=("gpu", "nic"))
    directory.write(written)
    (tmp_path / written[1].path).write_text(files()[0].content)
    directory.remove(ref, written)
    assert not root.exists() or present(root) == []
    directory.write(files(uid="uid-2"))
    directory.remove(ref, written)
    assert present(root) == ["default_my-claim/gpu/metadata.json"]


def test_what_else_lies_beside_the_files_is_removed_with_them(directory, tmp_path, root):
    written = files()
    directory.write(written)
    (tmp_path / written[0].path).with_name("metadata.json.new").touch()
    directory.remove(ClaimRef("default", "my-claim", "uid-1"), written)
    assert list(root.iterdir()) == []
