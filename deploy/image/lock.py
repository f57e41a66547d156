"""Writes requirements.txt and build-requirements.txt: what the image installs, with the hashes of every architecture.

`make lock` runs it in an environment with uv. kubernetes needs aiohttp, and what that brings, for kubernetes.aio only;
the image leaves that out.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ONLY_AIO = (
    *("aiohttp", "aiohttp-retry", "aiosignal", "aiohappyeyeballs", "attrs", "frozenlist", "multidict", "propcache"),
    "yarl",
)
COMMAND = ["pip", "compile", "--quiet", "--universal", "--python-version=3.11", "--generate-hashes", "--upgrade"]
PLAIN = ["--no-header", "--no-annotate"]


def write(name: str, heading: str, *arguments: str, source: str = "") -> None:
    """Write one file."""
    command = [sys.executable, "-m", "uv", *COMMAND, *PLAIN, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, input=source)
    (HERE / name).write_text(f"# {heading}: `make lock` writes it.\n{done.stdout}")


if __name__ == "__main__":
    without = [f"--no-emit-package={each}" for each in ONLY_AIO]
    project = str(HERE.parents[1] / "pyproject.toml")
    write(
        "requirements.txt",
        "What the image installs, for every architecture",
        "--extra=gpu",
        "--extra=nic",
        *without,
        project,
    )
    write("build-requirements.txt", "What builds the wheel in the image", "-", source="hatchling>=1.25\n")
