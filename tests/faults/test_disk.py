"""A disk that is full, read-only or broken, and directories that vanish: claims get a clear error and nothing leaks."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_sdk.errors import SettingsError, StateError
from dra_sdk.tools.simulator import ClaimRef
from dra_sdk.tools.simulator.kubelet.records import ResponseError
from tests.faults.site import Inside

STATE, CDI = "claims", "cdi"
STEPS = [
    *((STATE, each) for each in ("create", "write", "fsync", "rename")),
    *((CDI, each) for each in ("create", "write", "rename")),  # no spec waits for the disk
]
SAID = {STATE: "cannot write state file", CDI: "cannot write CDI spec"}


def full(folder: str, step: str, code: int = errno.ENOSPC, skip: int = 0) -> Callable[[str, Path], None]:
    """Writing in this folder fails at this step, after it worked `skip` times."""
    left = [None] * skip

    def on_step(name: str, path: Path) -> None:
        if name == step and path.parent.name == folder:
            if not left:
                raise OSError(code, os.strerror(code))
            left.pop()

    return on_step


class Broken:
    """The disk works for so many steps, then never again."""

    def __init__(self, code: int, steps: int) -> None:
        self.code, self.left = code, steps

    def __call__(self, step: str, path: Path) -> None:
        self.left -= 1
        if self.left < 0 and not (self.code == errno.ENOSPC and step == "unlink"):
            raise OSError(self.code, os.strerror(self.code))


def complaint(call: Callable[[ClaimRef], None], ref: ClaimRef, code: int) -> str:
    """What the driver's error is about, empty if there was none; it must say what is wrong with the disk."""
    try:
        call(ref)
    except ResponseError as error:
        _, about, what = re.split(r": (?=prepare|unprepare|cannot)", str(error), maxsplit=2)
        return about if os.strerror(code) in what else str(error)
    return ""


@pytest.mark.parametrize(("folder", "step"), STEPS)
def test_a_full_disk(site: Inside, folder: str, step: str) -> None:
    ref = site.claim("lamp-0", "lamp-1")
    site.on_step = full(folder, step)
    for _ in range(2):
        with pytest.raises(ResponseError, match=f"{SAID[folder]} .*{ref.uid}.*: No space left on device"):
            site.prepare(ref)
        site.assert_held()


@pytest.mark.parametrize("skip", [1, 2, 3, 4])
def test_a_disk_that_fills_up_meanwhile(site: Inside, skip: int) -> None:
    ref = site.claim("lamp-0", "lamp-1")
    site.on_step = full(STATE, "write", skip=skip)
    with pytest.raises(ResponseError, match=r"cannot write state file .*: No space left on device"):
        site.prepare(ref)
    site.assert_held()


@pytest.mark.parametrize("folder", [STATE, CDI])
def test_a_full_disk_keeps_no_claim_from_being_given_back(site: Inside, folder: str) -> None:
    ref = site.claim("lamp-0", "lamp-1")
    site.prepare(ref)
    site.on_step = full(folder, "create")
    site.unprepare(ref)
    site.assert_held()


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_breaks_at_any_step_of_prepare(site: Inside, code: int) -> None:
    for steps in range(100):
        ref = site.claim("lamp-0", "lamp-1")
        site.on_step = broken = Broken(code, steps)
        assert complaint(site.prepare, ref, code) in {"", f"prepare claim default/{ref.name} ({ref.uid})"}
        site.on_step = Broken(code, 1000)
        site.prepare(ref)
        site.assert_held(ref)
        site.unprepare(ref)
        site.assert_held()
        if broken.left >= 0:
            break
    assert steps > 20, "it writes less than it used to; or has nothing been broken?"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_breaks_at_any_step_of_unprepare(site: Inside, code: int) -> None:
    other = site.claim("lamp-1")
    for steps in range(100):
        ref = site.claim("lamp-0", "lamp-1")
        site.prepare(ref)
        site.on_step = broken = Broken(code, steps)
        assert complaint(site.unprepare, ref, code) in {"", f"unprepare claim default/{ref.name} ({ref.uid})"}
        site.on_step = Broken(code, 1000)
        site.unprepare(ref)
        site.prepare(other)
        site.assert_held(other)
        site.unprepare(other)
        if broken.left >= 0:
            break
    assert steps > 3


def test_a_read_only_cdi_directory_while_a_claim_is_held(site: Inside) -> None:
    ref, other = site.claim("lamp-0"), site.claim("lamp-0")
    site.prepare(ref)
    site.on_step = lambda step, path: full(CDI, step, errno.EROFS)(step, path)
    with pytest.raises(ResponseError, match=r"cannot remove CDI spec .*: Read-only file system"):
        site.unprepare(ref)
    with pytest.raises(ResponseError, match="lamp-0 is held by claim"):
        site.prepare(other)
    site.on_step = lambda _step, _path: None
    site.unprepare(ref)
    site.assert_held()


def test_a_cdi_directory_that_was_wiped(site: Inside) -> None:
    ref, other = site.claim("lamp-0"), site.claim("lamp-1")
    site.prepare(ref)
    shutil.rmtree(site.cluster.cdi_dir)
    site.prepare(ref)
    site.assert_held(ref)
    shutil.rmtree(site.cluster.cdi_dir)
    site.prepare(other)
    site.unprepare(ref)
    site.assert_held(other)
    shutil.rmtree(site.cluster.cdi_dir)
    site.unprepare(other)
    assert not site.cluster.cdi_dir.exists()
    site.cluster.cdi_dir.mkdir()


def test_a_file_in_place_of_the_cdi_directory(site: Inside) -> None:
    ref, other = site.claim("lamp-0"), site.claim("lamp-1")
    site.prepare(ref)
    shutil.rmtree(site.cluster.cdi_dir)
    site.cluster.cdi_dir.write_text("in the way")
    for each in (ref, other):
        with pytest.raises(ResponseError, match=r"cannot write CDI spec .*/cdi/.*: (Not a directory|File exists)"):
            site.prepare(each)
    site.unprepare(ref, other)
    assert site.shining() == {}
    assert site.cluster.cdi_dir.read_text() == "in the way"
    site.cluster.cdi_dir.unlink()


def test_a_state_directory_that_was_wiped(site: Inside) -> None:
    ref, other = site.claim("lamp-0"), site.claim("lamp-1")
    site.prepare(ref)
    shutil.rmtree(site.states)
    site.unprepare(ref)
    assert site.shining() == {}
    with pytest.raises(ResponseError, match=rf"cannot write state file {site.states}/.*: No such file or directory"):
        site.prepare(other)
    assert site.shining() == {}
    site.states.mkdir()
    site.prepare(other)
    site.assert_held(other)
    site.unprepare(other)


@pytest.mark.parametrize("place", ["cdi", "kubelet/plugins", "kubelet/plugins/lamps.example.com/claims"])
def test_a_file_where_a_directory_should_be_is_told_at_the_start(fresh: Inside, place: str) -> None:
    path = fresh.cluster.root / place
    if path.exists():
        path.rmdir()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("in the way")
    with (
        pytest.raises(
            (SettingsError, StateError), match=f"{path}.*(: File exists|: Not a directory|is not a directory)"
        ),
        fresh.running(),
    ):
        pass
    assert path.read_text() == "in the way"
    assert not list(fresh.cluster.registry_dir.iterdir())
    path.unlink()
    with fresh.running():
        fresh.wait_registered()
        fresh.assert_sound()


def test_a_disk_that_is_full_at_the_start(fresh: Inside) -> None:
    ref = fresh.claim("lamp-0")
    with fresh.running():
        fresh.wait_registered()
        fresh.prepare(ref)
    shutil.rmtree(fresh.cluster.cdi_dir)
    fresh.on_step = full(CDI, "write")
    with fresh.running():
        fresh.cluster.kubelet.restart()
        fresh.wait_registered()
        with pytest.raises(ResponseError, match=r"cannot write CDI spec .*: No space left on device"):
            fresh.prepare(ref)
        fresh.on_step = lambda _step, _path: None
        fresh.prepare(ref)
        fresh.assert_held(ref)
        fresh.unprepare(ref)
        fresh.assert_sound()
