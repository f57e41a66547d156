"""State files that are damaged, foreign or of another boot: told, never replaced by nothing, healed once restored."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.tools.simulator import ClaimRef
from dra_sdk.tools.simulator.kubelet.records import ResponseError
from tests.faults.site import Inside
from tests.lamps import NAME

HEADER = b'{"version": 1, "sha256": "'


def newer(good: bytes) -> bytes:
    return good.replace(b'"version": 1', b'"version": 2')


def flipped(good: bytes) -> bytes:
    return good.replace(b"lamp-0", b"lamp-9")


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda good: b"", "has no readable header"),
    "zeros": (lambda good: bytes(len(good)), "has no readable header"),
    "cut in its header": (lambda good: good[:20], "has no readable header"),
    "cut in its body": (lambda good: good[: len(good) // 2], "is damaged: its checksum does not match"),
    "one device is another": (flipped, "is damaged: its checksum does not match"),
    "of a newer release": (newer, "has format 2, this release reads up to 1"),
    "foreign": (lambda good: b'{"apiVersion": "v1"}', "has no readable header"),
    "no text": (lambda good: b"\xff\xfe\x00\n\x80", "has no readable header"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_file(fresh: Inside, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    damage, said = DAMAGE[kind]
    ref, other = fresh.claim("lamp-0"), fresh.claim("lamp-1")
    with fresh.running():
        fresh.wait_registered()
        fresh.prepare(ref, other)
    path, spec = state_and_spec(fresh, ref)
    good, bad, wanted = path.read_bytes(), damage(path.read_bytes()), spec.read_bytes()
    path.write_bytes(bad)
    with fresh.running():
        fresh.cluster.kubelet.restart()
        fresh.wait_registered()
        assert f"state file {path} {said}" in caplog.text
        for call in (fresh.prepare, fresh.unprepare):
            with pytest.raises(ResponseError, match=f"state file {path} {said}"):
                call(ref)
        fresh.prepare(other)
        fresh.unprepare(other)
        assert (path.read_bytes(), spec.read_bytes()) == (bad, wanted)
        assert fresh.shining() == {"lamp-0": ref.uid}
        path.write_bytes(good)
        fresh.prepare(ref)
        fresh.assert_held(ref)
        fresh.unprepare(ref)
        fresh.assert_sound()
    assert fresh.driver.prepared.count(ref.uid) == 1


def test_a_damaged_file_that_is_removed_frees_its_claim(fresh: Inside) -> None:
    ref = fresh.claim("lamp-0")
    with fresh.running():
        fresh.wait_registered()
        fresh.prepare(ref)
    path, spec = state_and_spec(fresh, ref)
    path.write_bytes(b"")
    with fresh.running():
        fresh.cluster.kubelet.restart()
        fresh.wait_registered()
        with pytest.raises(ResponseError):
            fresh.unprepare(ref)
        path.unlink()
        fresh.unprepare(ref)
        assert not spec.exists()
        (fresh.lamps / "lamp-0").unlink()  # nobody knew of it any more
        fresh.assert_sound()


def test_two_processes_notice_damage_at_once(fresh: Inside) -> None:
    ref = fresh.claim("lamp-0")
    with fresh.running(pod_uid="0a1b2c3d"):
        fresh.wait_registered()
        fresh.prepare(ref)
        path, _ = state_and_spec(fresh, ref)
        good = path.read_bytes()
        path.write_bytes(good[:-9])
        with pytest.raises(ResponseError, match="is damaged: its checksum does not match"):
            fresh.unprepare(ref)
        path.write_bytes(good)
        fresh.unprepare(ref)
        fresh.assert_sound()


def test_foreign_files_beside_the_state_files_stay(fresh: Inside) -> None:
    fresh.states.mkdir(parents=True)
    foreign = {"notes.txt": b"mine", ".hidden.json": b"x", "0000.json~": b"edited"}
    for name, content in foreign.items():
        (fresh.states / name).write_bytes(content)
    (fresh.states / ".tmp-0000.json~").write_bytes(b"half")
    ref = fresh.claim("lamp-0")
    with fresh.running():
        fresh.wait_registered()
        fresh.prepare(ref)
        fresh.unprepare(ref)
        assert fresh.process.preparer.held() == []
    assert {name: (fresh.states / name).read_bytes() for name in foreign} == foreign
    assert not list(fresh.states.glob(".tmp-*"))
    assert not list(fresh.cluster.cdi_dir.iterdir())


FOREIGN: dict[str, tuple[Callable[[Path], object], Callable[[Path], object]]] = {
    "file": (lambda path: path.write_bytes(b"{}"), Path.unlink),
    "directory": (Path.mkdir, Path.rmdir),
    "link": (lambda path: path.symlink_to("missing"), Path.unlink),
    "pipe": (os.mkfifo, Path.unlink),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_state_file_that_tells_nothing_may_hold_any_device(fresh: Inside, kind: str) -> None:
    make, remove = FOREIGN[kind]
    fresh.states.mkdir(mode=0o700, parents=True)
    path = fresh.states / "backup.json"
    make(path)
    held, ref = fresh.claim("lamp-0"), fresh.claim("lamp-1")
    with fresh.running():
        fresh.wait_registered()
        with pytest.raises(ResponseError, match=f"state file {path} .* no claim gets a device until"):
            fresh.prepare(held)
        remove(path)
        fresh.prepare(held)
    make(path)
    with fresh.running():
        fresh.cluster.kubelet.restart()
        fresh.wait_registered()
        fresh.prepare(held)
        fresh.unprepare(held)
        remove(path)
        fresh.prepare(ref)
        fresh.unprepare(ref)
        fresh.assert_sound()


def test_specs_of_nobody_go_and_those_of_others_stay(fresh: Inside) -> None:
    ref = fresh.claim("lamp-0")
    with fresh.running():
        fresh.wait_registered()
        fresh.prepare(ref)
    _, spec = state_and_spec(fresh, ref)
    wanted = spec.read_bytes()
    spec.write_bytes(b"damaged")
    ours = [spec.with_name(spec.name.replace(ref.uid, "lost")), spec.with_name(f".tmp-{spec.name}~")]
    others = [
        spec.with_name(name) for name in ("lamps.example.com-device.json", "vendor.json", "other-claim-lost.json")
    ]
    for path in (*ours, *others):
        path.write_bytes(wanted)
    os.utime(ours[0], (9e9, 9e9))  # the clock was set back since
    with fresh.running():
        assert spec.read_bytes() == wanted
        assert [path for path in ours if path.exists()] == []
        assert all(path.exists() for path in others)


def test_after_a_reboot_claims_are_undone_and_set_up_anew(fresh: Inside, tmp_path: Path) -> None:
    refs = prepared, half, gone = fresh.claim("lamp-0"), fresh.claim("lamp-1"), fresh.claim("lamp-2")
    with fresh.running(host_root=host(tmp_path, "boot-1")):
        fresh.wait_registered()
        fresh.prepare(prepared, gone)
        fresh.driver.step = lambda name: forget_to_undo() if name == "prepare: on" else None

        def forget_to_undo() -> None:
            fresh.driver.step = lambda name: 1 / 0 if "unprepare" in name else None
            raise OSError("burnt")

        with pytest.raises(ResponseError, match="undoing it failed as well"):
            fresh.prepare(half)
    fresh.driver.step = lambda _name: None
    for path in fresh.lamps.iterdir():
        path.unlink()
    shutil.rmtree(fresh.cluster.cdi_dir)
    with fresh.running(host_root=host(tmp_path, "boot-2")):
        fresh.cluster.kubelet.restart()
        fresh.wait_registered()
        assert not fresh.cluster.cdi_dir.exists() or not list(fresh.cluster.cdi_dir.iterdir())
        fresh.driver.undone.clear()
        fresh.prepare(prepared, half)
        fresh.unprepare(gone)
        assert {each.uid: (each.rebooted, each.complete) for each in fresh.driver.undone} == {
            prepared.uid: (True, True),
            half.uid: (True, False),
            gone.uid: (True, True),
        }
        fresh.assert_held(prepared, half)
        fresh.prepare(prepared)
        assert fresh.driver.prepared.count(prepared.uid) == 2
        fresh.unprepare(*refs)
        fresh.assert_sound()


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_no_boot_id(fresh: Inside, tmp_path: Path, content: str | None) -> None:
    root = host(tmp_path, content or "")
    if content is None:
        shutil.rmtree(root / "proc")
    with pytest.raises(SettingsError, match="boot_id"), fresh.running(host_root=root):
        pass


def host(folder: Path, boot_id: str) -> Path:
    path = folder / "host/proc/sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{boot_id}\n")
    return folder / "host"


def state_and_spec(site: Inside, ref: ClaimRef) -> tuple[Path, Path]:
    (spec,) = site.cluster.cdi_dir.glob(f"*{ref.uid}*")
    assert json.loads(spec.read_bytes())["kind"] == f"{NAME}/device"
    return site.states / f"{ref.uid}.json", spec
