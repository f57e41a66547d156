"""Durable files: whatever happens at whichever step, the file is the old one or the new one."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.node.files import END, PREFIX, Files, check_shared_directory, private_directory, read, targets
from tests.open_files import times_open

STEPS = ["create", "write", "fsync", "rename", "fsync-directory"]


def leftovers(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir() if path.name.startswith(PREFIX)]


def test_a_file_is_written_with_its_mode_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    Files().write(path, b"one")
    assert path.read_bytes() == b"one"
    assert path.stat().st_mode & 0o777 == 0o600
    Files().write(path, b"two", mode=0o644)
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(tmp_path) == ["a.json"]


def test_the_content_is_on_disk_before_the_name_is(tmp_path: Path) -> None:
    seen: list[str] = []
    files = Files(lambda step, path: seen.append(step))
    files.write(tmp_path / "a", b"x")
    assert seen == STEPS
    seen.clear()
    files.remove(tmp_path / "a")
    assert seen == ["unlink", "fsync-directory"]


def test_a_link_gets_another_name_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "target").write_bytes(b"x")
    (tmp_path / "a").symlink_to("target")
    seen: list[str] = []
    assert Files(lambda step, path: seen.append(step)).rename(tmp_path / "a", ".b") == tmp_path / ".b"
    assert seen == ["rename", "fsync-directory"]
    assert (tmp_path / ".b").readlink() == Path("target")
    assert sorted(os.listdir(tmp_path)) == [".b", "target"]


def test_what_reaches_the_disk_is_the_whole_file_and_then_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, int]] = []
    opened: list[Path] = []

    def watch(handle: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{handle}"))
        opened.append(path)
        synced.append((path.name, path.stat().st_size if path.is_file() else len(list(path.glob("a")))))

    monkeypatch.setattr(os, "fsync", watch)
    Files().write(tmp_path / "a", b"x" * 100)
    Files().write(tmp_path / "a", b"y" * 50, survive_power_loss=False)
    Files().remove(tmp_path / "a")
    (first, second, third, fourth) = synced
    assert first[0].startswith(PREFIX)
    assert first[1] == 100
    assert second == (tmp_path.name, 1)
    assert third[0].startswith(PREFIX)
    assert third[1] == 50
    assert fourth == (tmp_path.name, 0)
    assert [times_open(path) for path in opened] == [0] * len(synced)


def test_a_temporary_file_is_none_that_a_container_runtime_reads(tmp_path: Path) -> None:
    during: list[str] = []
    Files(lambda _step, _path: during.extend(leftovers(tmp_path))).write(tmp_path / "a.json", b"")
    assert {Path(name).suffix for name in during} == {".json~"}


@pytest.mark.parametrize("failing", STEPS)
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failing_step_leaves_the_old_or_the_new_file(tmp_path: Path, failing: str, error: BaseException) -> None:
    path = tmp_path / "a"
    Files().write(path, b"old")

    def fail(step: str, _path: Path) -> None:
        if step == failing:
            raise error

    with pytest.raises(type(error)):
        Files(fail).write(path, b"new")
    assert path.read_bytes() == (b"new" if failing == "fsync-directory" else b"old")
    assert leftovers(tmp_path) == []


CHILD = """
import os, sys
from pathlib import Path
from dra_sdk.node.files import Files
root, action, ended = Path(sys.argv[1]), sys.argv[2], []
for step in sys.argv[3:]:
    child = os.fork()
    if child == 0:
        files = Files(lambda found, _path: os._exit(7) if found == step else None)
        path = root / step / "a"
        files.remove(path) if action == "remove" else files.write(path, b"new" * 5000)
        os._exit(0)
    ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
sys.exit(7 if set(ended) == {7} else 1)
"""


@pytest.mark.parametrize(("action", "steps"), [("write", STEPS), ("remove", ["unlink", "fsync-directory"])])
def test_a_process_that_dies_at_any_step_leaves_the_old_or_the_new_file(
    tmp_path: Path, action: str, steps: list[str]
) -> None:
    for step in steps:
        (tmp_path / step).mkdir()
        Files().write(tmp_path / step / "a", b"old")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    child = subprocess.run([sys.executable, "-c", CHILD, str(tmp_path), action, *steps], env=environment, check=False)
    assert child.returncode == 7
    for step in steps:
        path, last = tmp_path / step / "a", step == "fsync-directory"
        if action == "remove":
            assert path.exists() is not last
        else:
            assert path.read_bytes() == (b"new" * 5000 if last else b"old")
        Files().discard_temporary(path)
        assert leftovers(path.parent) == []


def test_removing_nothing_succeeds_even_where_nothing_can_be_removed(tmp_path: Path) -> None:
    def read_only(step: str, _path: Path) -> None:
        if step == "unlink":
            raise OSError(30, "Read-only file system")

    (tmp_path / "file").touch()
    Files(read_only).remove(tmp_path / "missing")
    Files(read_only).remove(tmp_path / "no-directory" / "missing")
    Files(read_only).remove(tmp_path / "file" / "missing")


def test_a_removal_whose_last_step_failed_is_made_durable_by_the_next(tmp_path: Path) -> None:
    seen: list[str] = []
    path = tmp_path / "a"
    path.touch()

    def fail_once(step: str, _path: Path) -> None:
        seen.append(step)
        if seen == ["unlink", "fsync-directory"]:
            raise OSError(5, "Input/output error")

    files = Files(fail_once)
    with pytest.raises(OSError, match="Input/output"):
        files.remove(path)
    files.remove(path)
    assert seen == ["unlink", "fsync-directory", "fsync-directory"]


def test_what_a_killed_write_left_is_overwritten_and_removed(tmp_path: Path) -> None:
    path, left = tmp_path / "a.json", tmp_path / f"{PREFIX}a.json{END}"
    left.write_bytes(b"half of a much longer content")
    assert list(targets(tmp_path, ".json")) == ["a.json"]
    Files().write(path, b"whole")
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"whole", ["a.json"])
    left.write_bytes(b"half")
    Files().remove(path)
    assert os.listdir(tmp_path) == []


def test_what_a_killed_write_left_is_discarded(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}a.json{END}").write_bytes(b"half")
    Files().discard_temporary(tmp_path / "a.json")
    assert os.listdir(tmp_path) == []


def test_nothing_is_written_or_read_through_a_link(tmp_path: Path) -> None:
    """Whoever can place a link in a directory of root's would have root write where it points."""
    precious = tmp_path / "precious"
    precious.write_bytes(b"keep")
    for name in ("a.json", f"{PREFIX}b.json{END}"):
        (tmp_path / name).symlink_to(precious)
    (tmp_path / f"{PREFIX}d.json{END}").hardlink_to(precious)
    for name in ("a.json", "b.json", "d.json"):
        Files().write(tmp_path / name, b"new")
        assert (tmp_path / name).read_bytes() == b"new"
        assert (precious.read_bytes(), (tmp_path / name).is_symlink()) == (b"keep", False)
    (tmp_path / "c.json").symlink_to(precious)
    with pytest.raises(OSError, match="symbolic link"):
        read(tmp_path / "c.json")


def test_a_mode_is_changed_but_not_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    Files().set_mode(tmp_path / "file", 0o400)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o400
    with pytest.raises(OSError, match="symbolic links"):
        Files().set_mode(tmp_path / "link", 0o600)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o400


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        read(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"x" * 200_000)
    assert read(tmp_path / "file") == b"x" * 200_000
    os.truncate(tmp_path / "file", (64 << 20) + 1)
    with pytest.raises(OSError, match="it has more than 64 MiB"):
        read(tmp_path / "file")


def test_a_private_directory_has_its_mode_whatever_the_umask_is(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        private_directory(tmp_path / "plugins" / "driver", 0o750)
    finally:
        os.umask(umask)
    modes = [stat.S_IMODE((tmp_path / each).stat().st_mode) for each in ("plugins", "plugins/driver")]
    assert modes == [0o750, 0o750]


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_directory_that_others_may_write_is_refused_with_owner_and_mode(tmp_path: Path, mode: int) -> None:
    place = tmp_path / "driver"
    place.mkdir()
    place.chmod(mode)
    with pytest.raises(SettingsError, match=f"directory {place} has owner {os.geteuid()} and mode 0{mode:o}"):
        private_directory(place, 0o750)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_owner_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "driver"
    place.mkdir()
    os.chown(place, 65534, -1)
    with pytest.raises(SettingsError, match="has owner 65534 and mode"):
        private_directory(place, 0o750)


@pytest.mark.parametrize(("mode", "refused"), [(0o777, True), (0o772, True), (0o775, False), (0o1777, False)])
def test_a_shared_directory_that_everybody_may_write_is_refused(tmp_path: Path, mode: int, refused: bool) -> None:
    tmp_path.chmod(mode)
    with (
        pytest.raises(SettingsError, match=f"directory {tmp_path} has owner .* and mode 0{mode:o}")
        if refused
        else (contextlib.nullcontext())
    ):
        check_shared_directory(tmp_path)


def test_a_link_is_no_private_directory(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "driver").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SettingsError, match="is not a directory but a link or a file"):
        private_directory(tmp_path / "driver", 0o750)


def test_a_name_as_long_as_a_file_name_can_be_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250 + ".json")
    Files().write(path, b"x")
    assert path.read_bytes() == b"x"
