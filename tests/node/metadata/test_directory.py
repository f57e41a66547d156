from __future__ import annotations

import os
import stat

import pytest

from dra_sdk.errors import ClaimError, InvalidObjectError
from dra_sdk.node.metadata.directory import MetadataDirectory
from dra_sdk.node.metadata.encoding import MetadataDevice
from dra_sdk.node.metadata.files import claim_metadata
from dra_sdk.node.metadata.reading import read_file
from dra_sdk.node.prepare.files import Files

DRIVER = "gpu.example.com"


def files(uid="uid-1", name="my-claim", requests=("gpu",)):
    claim = {"metadata": {"namespace": "default", "name": name, "uid": uid}}
    return claim_metadata(DRIVER, claim, [MetadataDevice(each, "node-a", "gpu-0") for each in requests])


def gpu(name="gpu-7", request="gpu"):
    return [MetadataDevice(request, "node-a", name)]


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
        path = directory.data / each.path
        assert path.read_text() == each.content
        assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_write_that_fails_names_the_file(tmp_path):
    (tmp_path / "dra-device-metadata").write_text("in the way")
    with pytest.raises(ClaimError, match=r"cannot write device metadata .*/default_my-claim/gpu/metadata\.json: "):
        MetadataDirectory(DRIVER, tmp_path, Files()).write(files())


@pytest.mark.parametrize("broken", ["create", "write", "fsync", "rename"])
def test_a_file_is_the_old_or_the_new_one_whole_whatever_step_fails(tmp_path, root, broken):
    (file,) = files()
    MetadataDirectory(DRIVER, tmp_path, Files()).write([file])

    def fail(step, _path):
        if step == broken:
            raise OSError(28, "No space left on device")

    with pytest.raises(ClaimError, match="No space left on device"):
        MetadataDirectory(DRIVER, tmp_path, Files(fail)).update("default", "my-claim", "uid-1", "gpu", gpu())
    assert (tmp_path / file.path).read_text() == file.content
    assert present(root) == ["default_my-claim/gpu/metadata.json"]


def test_what_was_lost_is_written_again_and_what_was_updated_stays(directory, tmp_path):
    remembered = files(requests=("gpu", "nic"))
    directory.write(remembered)
    directory.update("default", "my-claim", "uid-1", "gpu", gpu())
    (tmp_path / remembered[1].path).unlink()
    directory.ensure(remembered)
    assert read_file(tmp_path / remembered[0].path).metadata.generation == 2
    assert (tmp_path / remembered[1].path).read_text() == remembered[1].content


def test_an_update_writes_the_next_generation(directory, tmp_path):
    directory.write(files())
    for generation in (2, 3, 4):
        file = directory.update("default", "my-claim", "uid-1", "gpu", gpu(f"gpu-{generation}"))
        document = read_file(tmp_path / file.path)
        assert document.metadata.generation == generation
        assert document.requests[0].devices[0].name == f"gpu-{generation}"


@pytest.mark.parametrize(("name", "uid", "request_name"), [("other", "uid-1", "gpu"), ("my-claim", "uid-2", "gpu"),
                                                           ("my-claim", "uid-1", "nic")])  # fmt: skip
def test_an_update_of_what_is_not_prepared_is_refused(directory, name, uid, request_name):
    directory.write(files())
    with pytest.raises(ClaimError, match=f"{uid}.*: no metadata found for request {request_name}"):
        directory.update("default", name, uid, request_name, gpu(request=request_name))


def test_an_update_of_a_damaged_file_says_so_and_leaves_it(directory, tmp_path):
    (file,) = files()
    directory.write([file])
    (tmp_path / file.path).write_text("{")
    with pytest.raises(InvalidObjectError, match=r"metadata\.json: is not JSON"):
        directory.update("default", "my-claim", "uid-1", "gpu", gpu())
    assert (tmp_path / file.path).read_text() == "{"


def test_removing_takes_the_whole_claim_and_may_be_repeated(directory, root):
    directory.write(files(requests=("gpu", "nic")))
    directory.write(files(name="other"))
    for _ in range(2):
        directory.remove("default", "my-claim", "uid-1")
        assert [path.name for path in root.iterdir()] == ["default_other"]


def test_removing_what_never_was_is_fine(directory):
    directory.remove("default", "my-claim", "uid-1")


def test_an_older_claim_of_the_same_name_does_not_take_the_newer_ones_files(directory, root):
    directory.write(files(uid="new"))
    directory.remove("default", "my-claim", "old")
    assert present(root) == ["default_my-claim/gpu/metadata.json"]


def test_damaged_files_and_leftovers_of_a_crash_are_removed(directory, tmp_path, root):
    (file,) = files()
    directory.write([file])
    (tmp_path / file.path).write_text("{")
    (root / "default_my-claim" / "gpu" / ".tmp-x").write_text("half")
    directory.remove("default", "my-claim", "uid-1")
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(("namespace", "name"), [("..", "x"), ("default", ".."), ("default", "a/b"), ("", "x")])
def test_hostile_names_reach_no_path(directory, tmp_path, namespace, name):
    keep = tmp_path / "precious"
    keep.write_text("x")
    directory.remove(namespace, name, "uid-1")  # no API server has such a claim, so there is nothing to remove
    assert keep.exists()
    with pytest.raises(ClaimError, match=r"metadata\.name"):
        directory.update(namespace, name, "uid-1", "gpu", [])


def test_a_removal_that_fails_names_the_directory(directory, root, monkeypatch):
    directory.write(files())

    def fail(_path):
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr("dra_sdk.node.metadata.directory.shutil.rmtree", fail)
    with pytest.raises(ClaimError, match=r"cannot remove device metadata .*/default_my-claim: Device or resource busy"):
        directory.remove("default", "my-claim", "uid-1")


def test_a_sweep_keeps_the_claims_that_are_held(directory, root):
    for uid, name in (("uid-a", "a"), ("uid-b", "b"), ("uid-c", "c" * 253)):
        directory.write(files(uid, name))
    directory.sweep({"uid-a", "uid-c"}.__contains__)
    assert sorted(path.name[:9] for path in root.iterdir()) == ["default_a", "default_c"]
    directory.sweep(lambda uid: False)
    assert list(root.iterdir()) == []


def test_a_sweep_spares_what_another_process_may_be_at_work_on(directory, root):
    """Its state comes last where a driver has nothing to undo, and before a file there is only a directory."""
    directory.write(files("uid-a", "a"))
    (root / "default_b/gpu").mkdir(parents=True)
    directory.sweep(lambda uid: False, older_than=600.0)
    assert sorted(path.name for path in root.iterdir()) == ["default_a", "default_b"]
    os.utime(root / "default_a", (1, 1))
    directory.sweep(lambda uid: False, older_than=600.0)
    assert [path.name for path in root.iterdir()] == ["default_b"]


def test_a_sweep_removes_what_is_damaged_so_that_it_can_be_written_again(directory, tmp_path):
    remembered = files()
    directory.write(remembered)
    (tmp_path / remembered[0].path).write_text("{")
    directory.sweep(lambda uid: True)
    directory.ensure(remembered)
    assert (tmp_path / remembered[0].path).read_text() == remembered[0].content


def test_a_sweep_of_a_fresh_node_is_fine(directory, tmp_path):
    directory.sweep(lambda uid: True)
    assert list(tmp_path.iterdir()) == []
