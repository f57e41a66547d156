"""The distributions of this repository: the SDK, and the drivers that `drivers/list.txt` names.

`python tests/distributions.py COMMAND` needs nothing but Python, so the Makefile can call it before anything is
installed. The names of these distributions are on no package index, and must not be asked from one, because a stranger
could register them. So third-party packages are installed first, with the hashes of `deploy/lock`, and ours from their
folders or wheels with `--no-index --no-deps`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
LOCK: Final = ROOT / "deploy/lock"
PIP: Final = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")
OWN: Final = ("--no-index", "--no-deps", "--no-build-isolation")


@dataclass(frozen=True)
class Distribution:
    """A folder with a pyproject.toml.

    folder: where it is.
    project: the table `[project]`.
    packages: its top-level packages.
    """

    folder: Path
    project: dict[str, Any]
    packages: tuple[str, ...]

    @classmethod
    def read(cls, folder: Path) -> Distribution:
        """Read the pyproject.toml of a folder."""
        file = tomllib.loads((folder / "pyproject.toml").read_text())
        packages = file["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
        return cls(folder, file["project"], tuple(packages))

    @property
    def name(self) -> str:
        """Its name in package metadata."""
        return str(self.project["name"])

    @property
    def entry_points(self) -> dict[str, dict[str, str]]:
        """Name and object by group (entry points specification of PyPA)."""
        scripts = self.project.get("scripts")
        return {**self.project.get("entry-points", {}), **({"console_scripts": scripts} if scripts else {})}

    @property
    def requirements(self) -> list[str]:
        """The third-party packages that it needs, and those of each extra."""
        extras = self.project.get("optional-dependencies", {}).values()
        groups = [self.project.get("dependencies", []), *extras]
        named = [requirement for group in groups for requirement in group if not requirement.startswith("dra-sdk")]
        return list(dict.fromkeys(named))


def sdk(root: Path = ROOT) -> Distribution:
    """Read the SDK's distribution."""
    return Distribution.read(root)


def driver_names(root: Path = ROOT) -> list[str]:
    """Return the folders below `drivers`, one for each distribution: the lines of `drivers/list.txt`."""
    return (root / "drivers/list.txt").read_text().split()


def drivers(root: Path = ROOT) -> list[Distribution]:
    """Read the drivers' distributions, in the order of the list."""
    return [Distribution.read(root / "drivers" / name) for name in driver_names(root)]


def distributions(root: Path = ROOT) -> list[Distribution]:
    """Read all distributions, the SDK first."""
    return [sdk(root), *drivers(root)]


def _python(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, *arguments], check=True)


def lock_files(folders: Iterable[Path], *names: str) -> list[Path]:
    """Return the lock files of these names in `deploy/lock`, and those of the drivers in these folders."""
    own = [folder / "lock.txt" for folder in folders]
    return [*(LOCK / f"{name}.txt" for name in names), *(path for path in own if path.is_file())]


def _install(locked: Iterable[Path], *own: str | Path) -> None:
    """Install what lock files name, which is all that is needed, and then `own` distributions."""
    _python(*PIP, "--require-hashes", "--no-deps", *(word for path in locked for word in ("-r", path)))
    if own:
        _python(*PIP, *OWN, *own)


def _editable(folders: Iterable[Path]) -> list[str | Path]:
    return [word for folder in folders for word in ("--editable", folder)]


def demo(name: str) -> None:
    """Install the SDK and one driver."""
    folder = ROOT / "drivers" / name
    _install(lock_files([folder], "build", "sdk", "tools"), *_editable([ROOT, folder]))


def develop() -> None:
    """Install all distributions from their folders, and everything that tests need."""
    folders = [driver.folder for driver in drivers()]
    _install(lock_files(folders, "build", "sdk", "tools", "dev", "proto"), *_editable([ROOT, *folders]))


def outside() -> None:
    """Install what the author of a driver has: a wheel of the SDK, which is built here, and the drivers' folders."""
    folders = [driver.folder for driver in drivers()]
    _install(lock_files(folders, "build", "sdk", "tools", "dev"))
    with TemporaryDirectory() as directory:
        _python("-m", "pip", "wheel", "--quiet", *OWN, "--wheel-dir", directory, ROOT)
        _python(*PIP, *OWN, "--force-reinstall", *Path(directory).glob("*.whl"))
    _python(*PIP, *OWN, *_editable(folders))


def document() -> None:
    """Install what the site needs, beside `develop`."""
    _install([LOCK / "docs.txt"])


def lint(*names: str) -> None:
    """Check the types and the contracts of each driver, or of those named, with the configuration of the SDK."""
    for driver in drivers():
        if names and driver.folder.name not in names:
            continue
        os.chdir(driver.folder)
        packages = [word for package in driver.packages for word in ("-p", package)]
        cache = f"--cache-dir={ROOT}/.mypy_cache/drivers"
        _python("-m", "mypy", "--config-file", ROOT / "pyproject.toml", cache, *packages)
        subprocess.run([Path(sys.executable).parent / "lint-imports"], check=True)


def test(*arguments: str) -> int:
    """Run the tests of all drivers at the same time, each in its folder; the first exit status that is not 0.

    `arguments` are pytest's. What each prints is shown as soon as it has ended, in the order of the list.
    """
    command = [sys.executable, "-m", "pytest", *arguments]
    with TemporaryDirectory() as directory:
        outputs = [Path(directory, name) for name in driver_names()]
        running = []
        for driver, output in zip(drivers(), outputs, strict=True):
            with output.open("wb") as file:
                running.append(subprocess.Popen(command, cwd=driver.folder, stdout=file, stderr=subprocess.STDOUT))
        for process, output in zip(running, outputs, strict=True):
            process.wait()
            sys.stdout.write(output.read_text(errors="replace"))
            sys.stdout.flush()
    return next((process.returncode for process in running if process.returncode), 0)


COMMANDS: Final[dict[str, Callable[..., int | None]]] = {
    "demo": demo,
    "develop": develop,
    "outside": outside,
    "document": document,
    "lint": lint,
    "test": test,
}


def main(arguments: Sequence[str]) -> int:
    """Run one command; the exit status is that of the first program that failed."""
    try:
        return COMMANDS[arguments[0]](*arguments[1:]) or 0
    except subprocess.CalledProcessError as error:
        return error.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
