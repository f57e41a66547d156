"""What the project needs in the machine's Python, read from pyproject.toml, and what makes it known there.

The sources themselves are the checkout's, as with an editable installation.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.cluster.harness.errors import HarnessError

if TYPE_CHECKING:
    from pathlib import Path

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
"""Of wheels that the machine's C library can load."""
_TOOLS = ("pytest", "pytest-timeout")


@dataclass(frozen=True)
class Dependencies:
    """`requirements` are for pip; `metadata` are the files, by their path, that tell of the project's entry points."""

    requirements: tuple[str, ...]
    metadata: dict[str, str]


def read(checkout: Path) -> Dependencies:
    """Of this checkout. HarnessError where a tool that the tests need is no development dependency any more."""
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    development = {_name(each): each for each in project["optional-dependencies"]["dev"]}
    if missing := [tool for tool in _TOOLS if tool not in development]:
        raise HarnessError(f"pyproject.toml has no development dependency {', '.join(missing)}")
    folder = f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    about = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    files = {f"{folder}/METADATA": about, f"{folder}/entry_points.txt": entry_points(project)}
    return Dependencies((*project["dependencies"], *(development[tool] for tool in _TOOLS)), files)


def entry_points(project: dict[str, Any]) -> str:
    """The file entry_points.txt (packaging.python.org, entry points specification)."""
    groups = {**project["entry-points"], "console_scripts": project["scripts"]}
    lines = []
    for group, entries in groups.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()), ""]
    return "\n".join(lines)


def _name(requirement: str) -> str:
    """`pytest` of `pytest>=8.3`."""
    return requirement.partition(">")[0].partition("=")[0].partition("<")[0].strip()
