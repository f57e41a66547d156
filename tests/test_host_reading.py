"""The host is read in one place: drivers and the SDK's hardware modules use the reader of `dra_sdk.hardware`.

A file that is opened elsewhere has no limit, no named error, and no fault of `dra_sdk.testing.host_faults` reaches it.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
READING: Final = frozenset(
    {
        *("open", "read_text", "read_bytes", "iterdir", "glob", "rglob", "iglob", "walk", "scandir", "listdir"),
        *("readlink", "realpath", "resolve", "fdopen"),
        *("exists", "lexists", "is_dir", "is_file", "is_symlink", "is_mount", "is_socket", "is_fifo"),
        *("is_block_device", "is_char_device", "stat", "lstat", "statvfs", "access", "samefile", "isdir", "isfile"),
        *("islink", "ismount", "getsize", "getmtime"),
    }
)
"""Names of functions and methods that read a file, list a directory, follow a link or ask what is at a path."""
READER: Final = "dra_sdk/hardware/host.py"
ELSEWHERE: Final = {
    "dra_sdk/hardware/child.py": ("open", "opens cgroup and namespace files to enter them, between fork and exec"),
    "dra_sdk/hardware/container_cgroup.py": ("open", "opens a file of a cgroup to write it"),
    "dra_sdk/hardware/daemons.py": ("exists glob read_text", "its own records and logs of daemons"),
    "dra_sdk/hardware/mounts.py": ("is_mount", "asks the effects, which a test puts in the kernel's place"),
    "dra_sdk/hardware/node_access.py": (
        "open iterdir read_bytes read_text readlink is_mount",
        "its own children in this process's /proc, the log that they write, and the kernel's side of the effects",
    ),
    "dra_sdk/hardware/pci_driver.py": ("open", "opens a VFIO group to find out whether the kernel refuses it"),
    "dra_sdk/hardware/records.py": ("open glob read_text", "its own records, under a lock"),
    "drivers/nic/dra_driver_nic/network/kernel.py": ("open listdir", "network namespaces to enter, and their sysctls"),
    "drivers/nic/dra_driver_nic/prepare/cni.py": ("access", "whether a plugin may be run, as execve asks"),
    "drivers/plugin/dra_driver_plugin/registry.py": ("exists", "the directory of the bridge's own sockets and records"),
}
"""The modules that read something that is no fact of the hardware: by which calls, and why."""


def modules() -> list[Path]:
    """Return the product code that reads hardware: of drivers without what they have for tests, and of the SDK."""
    paths = [*(ROOT / "dra_sdk/hardware").rglob("*.py"), *(ROOT / "drivers").glob("*/dra_*/**/*.py")]
    parts = [path.relative_to(ROOT) for path in paths]
    return sorted(path for path in parts if not {"testing", "testing.py", "fixtures"} & set(path.parts))


def readings(source: str) -> dict[str, str]:
    """Return the calls that read, each by its name with its line.

    That is `open`, a method of a path, or a function of `os`, `os.path` or `glob`, also one that is only handed on.
    """
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(source)):
        function = node.func if isinstance(node, ast.Call) else node
        is_called = function is not node
        if isinstance(function, ast.Attribute) and function.attr in READING:
            if is_called or ast.unparse(function.value) in {"Path", "os", "os.path"}:
                found[function.attr] = f"line {function.lineno}: {ast.unparse(function)}"
        elif isinstance(function, ast.Name) and function.id == "open":
            found[function.id] = f"line {function.lineno}: open"
    return found


@pytest.mark.parametrize("path", modules(), ids=str)
def test_the_host_is_read_by_the_reader_alone(path: Path) -> None:
    allowed = READING if str(path) == READER else set(ELSEWHERE.get(str(path), ("", ""))[0].split())
    found = [line for name, line in readings((ROOT / path).read_text()).items() if name not in allowed]
    assert found == [], f"{path}: use the readers of dra_sdk.hardware, or list it in ELSEWHERE with a reason"


def test_every_exception_is_needed() -> None:
    wanted = {path: set(calls.split()) for path, (calls, _) in ELSEWHERE.items()}
    assert {path: readings((ROOT / path).read_text()).keys() & calls for path, calls in wanted.items()} == wanted


@pytest.mark.parametrize(
    "line",
    [
        "open(path)",
        "path.read_text()",
        "(a / b).iterdir()",
        "os.listdir(a)",
        "sorted(a.glob('*'))",
        "x.readlink().name",
        "path.exists()",
        "(a / b).is_dir()",
        "os.stat(a)",
        "a.lstat().st_ino",
        "os.path.isdir(a)",
        "os.scandir(a)",
        "map(Path.is_file, paths)",
    ],
)
def test_each_way_to_read_is_seen(line: str) -> None:
    assert len(list(readings(f"import os\n{line}"))) == 1


def test_the_reader_itself_may_be_called() -> None:
    assert not readings("text = read_text(path)\nlink_target(path)\nentries(directory)\nexists(path)")
