"""State files as an operator meets them: what a damaged one still tells, repairing it, forgetting it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_sdk import HeldClaim, HeldDevice
from dra_sdk.errors import SettingsError, StateError
from dra_sdk.node.files import Files
from dra_sdk.node.prepare.checkpoint import Checkpoint, encode
from dra_sdk.node.prepare.checkpoint_store import CheckpointStore
from dra_sdk.node.prepare.state_files import Unreadable, forget, read_checkpoint, repair, state_files

GOOD = Checkpoint(
    HeldClaim(
        "ns",
        "n",
        "u-1",
        (HeldDevice("r", "p", "d", data={"a": 1}, cdi_ids=("x=y",)), HeldDevice("r", "p", "e", "share-1", True)),
        journal=({"was": "on"},),
    ),
    "boot-1",
)
HELD = (HeldDevice("r", "p", "d"), HeldDevice("r", "p", "e", "share-1", True))
CONTENT = encode(GOOD)
TELLING: dict[str, bytes] = {
    "cut in its body": CONTENT[:-40],
    "without its body": CONTENT.partition(b"\n")[0],
    "a flipped bit": CONTENT.replace(b'"name":"d"', b'"name":"f"'),
    "of a newer release": CONTENT.replace(b'"version": 1', b'"version": 2'),
}
SILENT: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "does not say which claim it belongs to and which devices that holds"),
    "cut in its header": (CONTENT[:200], "does not say which claim it belongs to and which devices that holds"),
    "without its header": (
        b"\0\0" + CONTENT[2:],
        "does not say which claim it belongs to and which devices that holds",
    ),
    "changed by hand": (
        CONTENT.replace(b"u-1", b"u-2"),
        "does not say which claim it belongs to and which devices that holds",
    ),
    "a copy": (
        encode(Checkpoint(HeldClaim("ns", "n", "u-2", HELD, complete=False), "b")),
        "belongs to claim u-2, whose file is u-2.json",
    ),
    "of no device": (
        encode(Checkpoint(HeldClaim("ns", "n", "u-1", complete=False), "b"))[:-9],
        "does not say which devices the claim holds",
    ),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    directory = tmp_path / "lamps.example.com/claims"
    directory.mkdir(mode=0o700, parents=True)
    return directory / "u-1.json"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    found = tmp_path / "cdi/spec.json"
    found.parent.mkdir()
    found.write_bytes(b"{}")
    return found


def unreadable(path: Path) -> Unreadable:
    found = read_checkpoint(path)
    assert isinstance(found, Unreadable)
    return found


@pytest.mark.parametrize("kind", TELLING)
def test_a_damaged_file_is_repaired_to_what_it_still_tells(path: Path, kind: str) -> None:
    path.write_bytes(TELLING[kind])
    assert unreadable(path).not_repairable == ""
    kept = repair(path, Files())
    assert read_checkpoint(path) == Checkpoint(HeldClaim("ns", "n", "u-1", HELD, complete=False), "boot-1")
    assert (kept.name, kept.read_bytes()) == (".damaged-u-1-1.json", TELLING[kind])
    assert {each.stat().st_mode & 0o777 for each in (path, kept)} == {0o600}
    assert state_files(path.parent.parent) == [path]


@pytest.mark.parametrize("kind", SILENT)
def test_a_file_that_does_not_tell_enough_stays_as_it_is(path: Path, kind: str) -> None:
    content, why = SILENT[kind]
    path.write_bytes(content)
    with pytest.raises(StateError, match=f"{path}.*, and cannot be repaired: it {why}; nothing was changed"):
        repair(path, Files())
    assert {each.name: each.read_bytes() for each in path.parent.iterdir()} == {path.name: content}


def test_a_good_file_is_not_repaired(path: Path) -> None:
    path.write_bytes(CONTENT)
    with pytest.raises(StateError, match="is not damaged, so there is nothing to repair"):
        repair(path, Files())
    assert os.listdir(path.parent) == [path.name]


def test_every_damaged_file_is_kept_and_none_twice(path: Path) -> None:
    for content in (TELLING["cut in its body"], TELLING["a flipped bit"], TELLING["cut in its body"]):
        path.write_bytes(content)
        repair(path, Files())
    kept = {each.name: each.read_bytes() for each in path.parent.glob(".damaged-*")}
    assert kept == {
        ".damaged-u-1-1.json": TELLING["cut in its body"],
        ".damaged-u-1-2.json": TELLING["a flipped bit"],
    }


def test_a_file_that_becomes_another_while_it_is_repaired_is_left_alone(path: Path) -> None:
    path.write_bytes(TELLING["cut in its body"])

    def restore(step: str, target: Path) -> None:
        if (step, target.name) == ("fsync-directory", ".damaged-u-1-1.json"):
            path.write_bytes(CONTENT)

    with pytest.raises(StateError, match="has just changed"):
        repair(path, Files(restore))
    assert read_checkpoint(path) == GOOD


@pytest.mark.parametrize("step", ["create", "write", "fsync", "rename", "fsync-directory"])
@pytest.mark.parametrize("target", [".damaged-u-1-1.json", "u-1.json"])
def test_a_repair_that_the_disk_refuses_can_be_repeated(path: Path, step: str, target: str) -> None:
    path.write_bytes(TELLING["cut in its body"])

    def refuse(at: str, file: Path) -> None:
        if (at, file.name) == (step, target):
            raise OSError(28, "No space left on device")

    with pytest.raises(StateError, match=f"cannot repair state file {path}: No space left on device; try again"):
        repair(path, Files(refuse))
    if isinstance(read_checkpoint(path), Unreadable):  # else only the last step was refused
        repair(path, Files())
    assert isinstance(read_checkpoint(path), Checkpoint)
    assert sorted(os.listdir(path.parent)) == [".damaged-u-1-1.json", "u-1.json"]


MADE: dict[str, Callable[[Path], object]] = {
    "damaged": lambda path: path.write_bytes(b""),
    "good": lambda path: path.write_bytes(CONTENT),
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "pipe": os.mkfifo,
    "directory": Path.mkdir,
}


@pytest.mark.parametrize("kind", MADE)
def test_whatever_lies_there_is_forgotten_and_kept(path: Path, spec: Path, kind: str) -> None:
    MADE[kind](path)
    before = path.lstat().st_ino
    kept = forget(path, spec, Files())
    assert (kept.name, kept.lstat().st_ino) == (".forgotten-u-1-1.json", before)
    assert not spec.exists()
    assert state_files(path.parent.parent) == []
    MADE[kind](path)
    assert forget(path, spec, Files()).name == ".forgotten-u-1-2.json"


def test_the_spec_is_gone_before_the_devices_are_free(path: Path, spec: Path) -> None:
    path.write_bytes(b"")
    seen: list[tuple[str, str]] = []
    forget(path, spec, Files(lambda step, target: seen.append((step, target.name))))
    assert seen == [
        ("unlink", "spec.json"),
        ("fsync-directory", "spec.json"),
        ("rename", "u-1.json"),
        ("fsync-directory", "u-1.json"),
    ]


@pytest.mark.parametrize("step", ["unlink", "rename"])
def test_a_disk_that_refuses_to_forget_leaves_the_file(path: Path, spec: Path, step: str) -> None:
    path.write_bytes(b"")

    def refuse(at: str, _target: Path) -> None:
        if at == step:
            raise OSError(30, "Read-only file system")

    with pytest.raises(StateError, match=f"cannot forget state file {path}: Read-only file system; try again"):
        forget(path, spec, Files(refuse))
    assert path.exists()
    forget(path, spec, Files())
    assert state_files(path.parent.parent) == []


def test_what_was_set_aside_is_no_state_when_the_driver_starts(path: Path, spec: Path) -> None:
    path.write_bytes(TELLING["cut in its body"])
    repair(path, Files())
    forget(path, spec, Files())
    store = CheckpointStore.of(path.parent.parent, "boot-1", Files(), undoable=False, shared=False)
    store.migrate(path.parent.parent, "boot-1")
    store.open()
    assert (store.all(), store.unreadable()) == ([], {})
    assert sorted(os.listdir(store.directory)) == [".damaged-u-1-1.json", ".forgotten-u-1-1.json"]


def test_a_pipe_among_state_files_bars_no_start_without_undo_hook(path: Path) -> None:
    os.mkfifo(path)
    store = CheckpointStore.of(path.parent.parent, "boot-1", Files(), undoable=False, shared=False)
    store.migrate(path.parent.parent, "boot-1")
    store.open()
    assert [each.path.name for each in store.unreadable().values()] == ["u-1.json"]


def test_files_of_all_boots_are_listed_and_nothing_else(path: Path) -> None:
    data = path.parent.parent
    (data / "claims-boot-0").mkdir(mode=0o700)
    (data / "claimsmen").mkdir()
    for name in (
        "claims/u-1.json",
        "claims/.tmp-u-1.json",
        "claims/notes",
        "claims-boot-0/u-0.json",
        "claimsmen/x.json",
    ):
        (data / name).touch()
    assert [str(each.relative_to(data)) for each in state_files(data)] == ["claims/u-1.json", "claims-boot-0/u-0.json"]


@pytest.mark.parametrize("name", ["claims", "claims-boot-0"])
def test_a_link_in_place_of_a_directory_is_refused(tmp_path: Path, path: Path, name: str) -> None:
    data, elsewhere = path.parent.parent, tmp_path / "elsewhere"
    path.parent.rmdir()
    elsewhere.mkdir()
    (data / name).symlink_to(elsewhere)
    with pytest.raises(SettingsError, match=f"{data / name} is not a directory but a link or a file"):
        state_files(data)


def test_the_advice_names_the_driver(path: Path) -> None:
    path.write_bytes(b"")
    assert unreadable(path).advice == (
        f"state file {path} has no readable header; it was not written by dra-sdk or is damaged; "
        f"`dra-sdk state lamps.example.com` shows, repairs or forgets it"
    )


def test_the_format_is_told_where_the_header_can_be_read(path: Path) -> None:
    cases = (
        (TELLING["of a newer release"], 2),
        (TELLING["cut in its body"], 1),
        (SILENT["without its header"][0], None),
    )
    for content, wanted in cases:
        path.write_bytes(content)
        assert unreadable(path).format == wanted
