"""Copies Python, a virtual environment and the libraries that they load into an empty tree: all that an image needs.

`python3 runtime_tree.py VENV TREE`, in the build stage of the Containerfile. The tree has no shell and no package
manager. Scanners find the Debian packages of its files in /var/lib/dpkg/status.d, as in other images without dpkg.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

PROGRAMS = ("chroot",)
"""What drivers run that is not the host's: programs of the host run below its root."""
LIBC = (
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "libm.so.6",
    "libresolv.so.2",
    "libnss_files.so.2",
    "libnss_dns.so.2",
)
"""Libraries of glibc that no file here names: NVML is loaded from the host, and needs them."""
ETC = ("passwd", "group", "nsswitch.conf", "os-release", "ld.so.conf", "ld.so.cache", "ssl/certs/ca-certificates.crt")
UNUSED = frozenset(
    {"test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip", "pydoc_data", "dist-packages"}
    | {"site-packages", "__pycache__"}
)
"""Directories of the standard library. Compiled files are made again, without time stamps."""
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")


def main(venv: Path, tree: Path) -> None:
    """Make the tree."""
    tree.mkdir()
    for link in ("bin", "sbin", "lib", "lib64"):
        if Path("/", link).is_symlink():
            tree.joinpath(link).symlink_to(Path("/", link).readlink())
            tree.joinpath("usr", link).mkdir(parents=True, exist_ok=True)
    python = Path(sys.executable).resolve()
    stdlib = Path(sysconfig.get_path("stdlib"))
    programs = [python, *(Path(shutil.which(name) or f"/usr/sbin/{name}") for name in PROGRAMS)]
    copied = [_copied(path, tree) for path in programs]
    _link(tree, python)
    shutil.copytree(stdlib, _inside(tree, stdlib), ignore=_unused, symlinks=True)
    shutil.copytree(venv, _inside(tree, venv), symlinks=True)
    objects = [*programs, *stdlib.rglob("*.so"), *venv.rglob("*.so"), *venv.rglob("*.so.*")]
    libraries = _libraries(objects)
    libc = next(library for library in libraries if library.name == "libc.so.6")
    libraries |= {libc.with_name(name) for name in LIBC if libc.with_name(name).exists()}
    copied += [_copied(path, tree) for path in sorted(libraries) if not path.is_relative_to(venv)]
    for name in ETC:
        if (file := Path("/etc", name)).exists():
            copied.append(_copied(file, tree))
    tree.joinpath("tmp").mkdir(exist_ok=True)
    tree.joinpath("tmp").chmod(0o1777)
    if shutil.which("dpkg-query"):
        _record_packages([*copied, stdlib / "os.py"], tree)


def _unused(_: str, names: list[str]) -> set[str]:
    return {name for name in names if name in UNUSED or name.startswith("config-3")}


def _inside(tree: Path, path: Path) -> Path:
    copy = tree / path.relative_to("/")
    copy.parent.mkdir(parents=True, exist_ok=True)
    return copy


def _copied(path: Path, tree: Path) -> Path:
    """Copy a file, and what a link leads to, to the same path; return the path of the file."""
    shutil.copy2(path, _inside(tree, path))
    return path.resolve()


def _link(tree: Path, python: Path) -> None:
    """Make the links by which the virtual environment finds the interpreter: python3 in its directory."""
    at = _inside(tree, python).parent / "python3"
    if not at.exists():
        at.symlink_to(python.name)


def _libraries(objects: Iterable[Path]) -> set[Path]:
    """Return what the dynamic linker loads for these files, itself included."""
    libraries: set[Path] = set()
    for path in objects:
        done = subprocess.run(["ldd", path], capture_output=True, text=True, check=False)
        if "not found" in done.stdout:
            raise SystemExit(f"{path} needs a library that is not there:\n{done.stdout}")
        libraries |= {Path(path) for path in _LIBRARY.findall(done.stdout)}
    return libraries


def _record_packages(files: Iterable[Path], tree: Path) -> None:
    """Copy the description and the licence of each Debian package that a file comes from."""
    paths = sorted({str(path) for path in files} | {str(path).removeprefix("/usr") for path in files})
    done = subprocess.run(["dpkg-query", "--search", *paths], capture_output=True, text=True, check=False)
    status = tree / "var/lib/dpkg/status.d"
    status.mkdir(parents=True)
    for package in sorted({line.partition(":")[0] for line in done.stdout.splitlines()}):
        described = subprocess.run(["dpkg-query", "--status", package], capture_output=True, check=True)
        status.joinpath(package).write_bytes(described.stdout)
        licence = Path("/usr/share/doc", package, "copyright")
        if licence.exists():
            _copied(licence, tree)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
