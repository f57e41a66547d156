"""One owner for a directory, and the boot id."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.node.runtime import instance
from dra_sdk.node.runtime.instance import InstanceLock, read_boot_id
from dra_sdk.testing.waiting import LONG
from tests.open_files import times_open

DENIED = """
import os
import sys
from pathlib import Path
from dra_sdk.errors import SettingsError
from dra_sdk.node.files import private_directory
from dra_sdk.node.runtime.instance import InstanceLock
os.chdir(sys.argv[1])
os.chmod(".", 0o755)
os.setgid(65534)
os.setuid(65534)
for use in (lambda: InstanceLock(Path("lock")).acquire(0.0), lambda: private_directory(Path("data"), 0o700)):
    try:
        use()
    except SettingsError as error:
        print(error)
"""

HOLDING = """
import sys
from pathlib import Path
from dra_sdk.node.runtime import instance
from dra_sdk.node.runtime.instance import InstanceLock
InstanceLock(Path(sys.argv[1])).acquire(0.0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock."""
    arguments = [sys.executable, "-c", HOLDING, str(tmp_path / "instance.lock")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, env=environment, stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout
        assert child.stdout.readline() == "held\n"
        yield child
        child.kill()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_other_than_root_is_told_so(tmp_path: Path) -> None:
    arguments = [sys.executable, "-c", DENIED, str(tmp_path)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    told = "Permission denied: a driver runs as root, and this is user 65534"
    assert done.stdout.splitlines() == [
        f"cannot lock lock: {told}",
        f"cannot make directory data: {told}",
    ]


def test_a_second_instance_is_told_what_to_do(
    tmp_path: Path,
    other: subprocess.Popen[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [100.0]
    monkeypatch.setattr(instance, "monotonic", lambda: now[0])
    monkeypatch.setattr(instance, "sleep", lambda seconds: now.append(now.pop() + seconds))
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(SettingsError, match=f"another instance of this driver still works on {tmp_path}; end it, or"),
    ):
        InstanceLock(tmp_path / "instance.lock").acquire(0.12)
    assert now == [pytest.approx(100.15)]
    assert caplog.messages == ["waiting for another instance of this driver to end"]


def test_a_successor_waits_for_a_predecessor_that_dies(tmp_path: Path, other: subprocess.Popen[str]) -> None:
    lock = InstanceLock(tmp_path / "instance.lock")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lock.acquire, LONG)
        other.kill()
        waiting.result(LONG)
    lock.release()


def test_it_can_be_taken_again_after_its_release(tmp_path: Path) -> None:
    path = tmp_path / "instance.lock"
    first, second = InstanceLock(path), InstanceLock(path)
    first.acquire(0.0)
    with pytest.raises(SettingsError):
        second.acquire(0.0)
    first.release()
    first.release()
    second.acquire(0.0)
    second.release()


def test_whoever_only_tries_is_told_whether_it_is_free(tmp_path: Path) -> None:
    path = tmp_path / "instance.lock"
    first, second = InstanceLock(path), InstanceLock(path)
    assert first.try_acquire()
    assert not second.try_acquire()
    assert times_open(path) == 1
    first.release()
    assert second.try_acquire()
    second.release()
    with pytest.raises(SettingsError, match="cannot lock"):
        InstanceLock(tmp_path / "none/instance.lock").try_acquire()


def test_children_of_a_hook_do_not_inherit_it(tmp_path: Path) -> None:
    path = tmp_path / "instance.lock"
    first, second = InstanceLock(path), InstanceLock(path)
    first.acquire(0.0)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False):  # ends with its input
        first.release()
        second.acquire(0.0)
        assert times_open(path) == 1
    second.release()


def test_waiting_in_vain_keeps_no_file_open(tmp_path: Path) -> None:
    path = tmp_path / "instance.lock"
    first = InstanceLock(path)
    first.acquire(0.0)
    assert times_open(path) == 1
    for _ in range(3):
        with pytest.raises(SettingsError):
            InstanceLock(path).acquire(0.0)
    assert times_open(path) == 1
    first.release()
    assert times_open(path) == 0


def test_a_directory_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"cannot lock {tmp_path}/none/instance.lock: No such file"):
        InstanceLock(tmp_path / "none/instance.lock").acquire(0.0)


def boot_id_file(root: Path) -> Path:
    path = root / "proc/sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True)
    return path


def test_the_boot_id_is_that_of_the_hosts_kernel(tmp_path: Path) -> None:
    boot_id_file(tmp_path).write_text("0a1b2c3d-0000-4000-8000-000000000000\n")
    assert read_boot_id(tmp_path) == "0a1b2c3d-0000-4000-8000-000000000000"
    assert read_boot_id(Path("/")) == read_boot_id(Path("/"))


def test_a_boot_id_that_is_missing_or_empty_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"cannot read the boot id from {tmp_path}.*: No such file"):
        read_boot_id(tmp_path)
    boot_id_file(tmp_path).write_text("\n")
    with pytest.raises(SettingsError, match="boot_id is empty"):
        read_boot_id(tmp_path)


def test_instances_of_a_rolling_update_share_it_and_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "instance.lock"
    old, new, alone = InstanceLock(path, shared=True), InstanceLock(path, shared=True), InstanceLock(path)
    old.acquire(0.0)
    new.acquire(0.0)
    with pytest.raises(SettingsError, match="another instance"):
        alone.acquire(0.0)
    old.release()
    new.release()
    alone.acquire(0.0)
    with pytest.raises(SettingsError, match="another instance"):
        new.acquire(0.0)
    alone.release()
