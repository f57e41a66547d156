"""The host is read in one place: drivers and the SDK's hardware modules use the reader of `dra_sdk.hardware`.

A file that is opened elsewhere has no limit, no named error, and no fault of `dra_sdk.testing.host_faults` reaches it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
READING: Final = frozenset(
    {
        *("open", "read_text", "read_bytes", "iterdir", "glob", "rglob", "iglob", "walk", "scandir", "listdir"),
        *("readlink", "realpath", "resolve", "fdopen"),
    }
)
"""Names of functions and methods that read a file, list a directory or follow a link."""
READER: Final = "dra_sdk/hardware/host_files.py"
ELSEWHERE: Final = {
    "dra_sdk/hardware/child.py": "opens cgroup and namespace files to enter them, between fork and exec",
    "dra_sdk/hardware/container_cgroup.py": "opens a file of a cgroup to write it",
    "dra_sdk/hardware/daemons.py": "its own records and logs of daemons",
    "dra_sdk/hardware/node_access.py": "its own children in this process's /proc, and the log that they write",
    "dra_sdk/hardware/pci_driver.py": "opens a VFIO group to find out whether the kernel refuses it",
    "dra_sdk/hardware/records.py": "its own records, under a lock",
    "drivers/nic/dra_driver_nic/network/kernel.py": "network namespaces to enter, and their sysctls",
}
"""The modules that open something that is no fact of the hardware, and why."""


def modules() -> list[Path]:
    """Return the product code that reads hardware: of drivers without what they have for tests, and of the SDK."""
    paths = [*(ROOT / "dra_sdk/hardware").rglob("*.py"), *(ROOT / "drivers").glob("*/dra_*/**/*.py")]
    parts = [path.relative_to(ROOT) for path in paths]
    return sorted(path for path in parts if not {"testing", "testing.py", "fixtures"} & set(path.parts))


def readings(source: str) -> Iterator[str]:
    """Yield the calls that read: of `open`, of a method of a path, or of a function of `os` and `glob`."""
    for node in ast.walk(ast.parse(source)):
        function = node.func if isinstance(node, ast.Call) else None
        if isinstance(function, ast.Attribute) and function.attr in READING:
            yield f"line {function.lineno}: {ast.unparse(function)}"
        elif isinstance(function, ast.Name) and function.id == "open":
            yield f"line {function.lineno}: open"


@pytest.mark.parametrize("path", modules(), ids=str)
def test_the_host_is_read_by_the_reader_alone(path: Path) -> None:
    found = [] if str(path) in {READER, *ELSEWHERE} else list(readings((ROOT / path).read_text()))
    assert found == [], f"{path}: use the readers of dra_sdk.hardware, or list it in ELSEWHERE with a reason"


def test_every_exception_is_needed() -> None:
    listed = {*ELSEWHERE, READER}
    assert sorted(path for path in listed if not list(readings((ROOT / path).read_text()))) == []


@pytest.mark.parametrize(
    "line",
    [
        "open(path)",
        "path.read_text()",
        "(a / b).iterdir()",
        "os.listdir(a)",
        "sorted(a.glob('*'))",
        "x.readlink().name",
    ],
)
def test_each_way_to_read_is_seen(line: str) -> None:
    assert len(list(readings(f"import os\n{line}"))) == 1


def test_the_reader_itself_may_be_called() -> None:
    assert list(readings("text = read_text(path)\nlink_target(path)\nentries(directory)")) == []
