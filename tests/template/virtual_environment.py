"""A virtual environment of its own for a driver, made without network: it sees the packages of the running one."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from typing import Final

_PROGRAMS: Final = {"dra-sdk": "dra_sdk.cli.main", "mypy": "mypy", "pip": "pip", "pytest": "pytest"}


def pip(*arguments: object) -> None:
    """Run pip without network."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


class VirtualEnvironment:
    """A new virtual environment in a directory, with the programs that a driver's author uses."""

    def __init__(self, directory: Path) -> None:
        venv.create(directory)
        (packages,) = (directory / "lib").glob("python*/site-packages")
        (packages / "others.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})\n")
        for name, module in _PROGRAMS.items():
            program = directory / "bin" / name
            program.write_text(f'#!/bin/sh\nexec python -m {module} "$@"\n')
            program.chmod(0o755)
        # `python -m ruff` starts the program in the environment's own directory, so that must be the real one.
        for name in ("ruff", "lint-imports"):
            (directory / "bin" / name).symlink_to(Path(sysconfig.get_path("scripts")) / name)
        self._environment = {**os.environ, "PATH": f"{directory / 'bin'}:{os.environ['PATH']}"}

    def run(self, line: str, folder: Path) -> subprocess.CompletedProcess[str]:
        """Run a line of a shell in a folder, and print it with its output; what is installed is there already."""
        command = ["bash", "-c", line]
        done = subprocess.run(command, cwd=folder, env=self._environment, capture_output=True, text=True, check=False)
        print(f"$ {line}\n{done.stdout}{done.stderr}")
        return done
