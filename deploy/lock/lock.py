"""Writes the lock files: which third-party packages are installed, for every architecture, with hashes.

`make lock` runs it in an environment with uv. Here are those of the image (`sdk`), of what builds wheels (`build`), and
of development (`tools`, `dev`, `docs`); a driver that needs more than the SDK has a `lock.txt` in its folder. A file
leaves out what an earlier one has, which is installed with it. kubernetes needs aiohttp, and what that brings, for
kubernetes.aio only, which nothing of ours uses.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
sys.path.insert(0, str(ROOT))

from tests.distributions import drivers, sdk  # noqa: E402

ONLY_AIO: Final = (
    *("aiohttp", "aiohttp-retry", "aiosignal", "aiohappyeyeballs", "attrs", "frozenlist", "multidict", "propcache"),
    "yarl",
)
COMMAND: Final = (
    *("pip", "compile", "-", "--quiet", "--universal", "--python-version=3.11", "--generate-hashes", "--upgrade"),
    *("--no-header", "--no-annotate"),
)
# Of this generator, the output needs protobuf 6.31.1; a later one's needs a later runtime. It runs without protobuf.
GENERATOR: Final = "What generates dra_sdk/wire/proto"
_ENTRY: Final = re.compile(r"\n(?=\S)")


def third_party(requirements: Iterable[str]) -> list[str]:
    """Leave out our own distributions, which no index may be asked for."""
    return [requirement for requirement in requirements if not requirement.startswith("dra-")]


def write(
    file: Path,
    heading: str,
    requirements: Sequence[str],
    *earlier: Path,
    agreeing: Sequence[Path] = (),
    without: Sequence[str] = (),
) -> Path:
    """Write one lock file, `without` some packages. `earlier` files are installed with it; `agreeing` ones agree."""
    constraints = [f"--constraint={path}" for path in (*earlier, *agreeing)]
    left_out = [f"--no-emit-package={name}" for name in (*ONLY_AIO, *without)]
    command = [sys.executable, "-m", "uv", *COMMAND, *constraints, *left_out]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, input="\n".join(requirements))
    present = {entry for path in earlier for entry in _ENTRY.split(path.read_text().strip())}
    entries = [entry for entry in _ENTRY.split(done.stdout.strip()) if entry not in present]
    file.write_text("\n".join([f"# {heading}: `make lock` writes it.", *entries]) + "\n")
    return file


def main() -> None:
    """Write all lock files."""
    project = sdk().project
    extras = {name: third_party(listed) for name, listed in project["optional-dependencies"].items()}
    node = write(HERE / "sdk.txt", "What the SDK needs on a node", project["dependencies"])
    build = write(HERE / "build.txt", "What builds wheels", ["hatchling>=1.25", "editables>=0.5"], agreeing=[node])
    tools = write(HERE / "tools.txt", "The extra `tools`", extras["tools"], node)
    written = [node, build, tools]
    for driver in drivers():
        needed = [line for line in third_party(driver.project["dependencies"]) if line not in project["dependencies"]]
        if needed:
            written.append(write(driver.folder / "lock.txt", f"What {driver.name} needs beside the SDK", needed, node))
    extra = [*extras["testing"], *extras["tracing"], *extras["dev"]]
    written.append(write(HERE / "dev.txt", "The extras `testing`, `tracing` and `dev`", extra, *written))
    write(HERE / "proto.txt", GENERATOR, ["grpcio-tools==1.76.*"], without=("grpcio", "protobuf", "setuptools"))
    write(HERE / "docs.txt", "The extra `docs`", extras["docs"], *written)


if __name__ == "__main__":
    main()
