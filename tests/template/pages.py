"""Runs a page of the documentation: writes its files, types its commands, and looks for the output that it shows.

The blocks of a page that is run are marked:

- `python`, `yaml`, `toml`: a file; the first line has its name, `# pizza/driver.py`.
- `sh`: commands, one on each line. `  # status 1` after one is its exit status, 0 without.
- `text`: lines that the commands before have printed.
- `console`: commands for a cluster, which are only parsed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_STATUS: Final = re.compile(r"  # status (\d)$")
Shell = Callable[[str, Path], "subprocess.CompletedProcess[str]"]


def blocks(page: Path) -> list[tuple[str, str]]:
    """The kind and the text of each block."""
    return _BLOCK.findall(page.read_text())


def run_page(page: Path, folder: Path, shell: Shell, *, new_files: bool = True) -> list[str]:
    """Do what a page says, in a folder; returns its commands. `new_files`: whether a block may make Python."""
    output, commands = "", []
    found = blocks(page)
    assert found, f"{page.name} has no block"
    for kind, text in found:
        if kind in {"python", "yaml", "toml"}:
            name, _, content = text.removeprefix("# ").partition("\n")
            assert re.fullmatch(r"[\w./-]+\.\w+", name), f"{page.name}: a block begins with {name!r}, want `# FILE`"
            known = new_files or kind == "yaml" or (folder / name).is_file()
            assert known, f"{page.name}: a block replaces {name}, which `dra-sdk new` has not written"
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
        elif kind == "text":
            missing = [line for line in text.splitlines() if line not in output]
            assert missing == [], f"{page.name} shows lines that are not in\n{output}"
        elif kind == "sh":
            output = ""
            for line in text.splitlines():
                commands.append(line)
                if line.startswith("cd "):
                    folder /= line.removeprefix("cd ")
                    continue
                expected = _STATUS.search(line)
                done = shell(line, folder)
                wanted = int(expected[1]) if expected else 0
                assert done.returncode == wanted, f"{page.name}: {line}\n{done.stdout}{done.stderr}"
                output += done.stdout
        else:
            assert kind == "console", (
                f"{page.name}: a block is marked {kind!r}, want python, yaml, toml, sh, text, console"
            )
    return commands


def here(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Type a line with the programs of the Python that runs."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": programs, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
