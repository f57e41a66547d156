"""The files of the machine, in the cache: a Debian system with kernel and QEMU, and the project's Python dependencies.

Each layer is a directory whose name ends in a hash of what is in it, so another recipe makes another one. It is made
beside its place and renamed, so what is there is whole. Layers of other recipes go when a new one was made, unless a
machine runs on them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.runtime import KEYRING, choose_mirror, find_tool
from tests.lab.harness import dependencies
from tests.lab.harness.contained import contained, entered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.cluster.harness.cache import Cache
    from tests.cluster.harness.progress import Progress

SUITE = "trixie"
PACKAGES = ("qemu-system-x86", "linux-image-amd64", "busybox-static", "kmod", "iproute2", "python3")
CHECKOUT, PYTHON, RESULTS = "/lab/checkout", "/lab/python", "/lab/results"
_RECIPE = "1"  # to be raised when the way in which layers are made changes
_TAIL = 2000  # characters


@dataclass(frozen=True)
class Layers:
    """The directories that a machine is booted from."""

    base: Path
    python: Path

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """As long as this is held nobody removes them."""
        with ExitStack() as held:
            for path in (self.base, self.python):
                try:
                    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
                    held.callback(os.close, handle)
                    fcntl.flock(handle, fcntl.LOCK_SH)
                    os.stat(path)  # whoever had it before us may have removed it
                except FileNotFoundError:
                    raise HarnessError(f"{path} was removed by another run, whose machine is made otherwise") from None
            yield


def key(*parts: str) -> str:
    """What tells recipes apart."""
    return hashlib.sha256("\0".join((_RECIPE, *parts)).encode()).hexdigest()[:12]


def ensure_layers(cache: Cache, checkout: Path, progress: Progress) -> Layers:
    """The layers, made first where they are missing. Needs root, and the Debian archive and the package index then."""
    if os.geteuid() != 0:
        raise HarnessError("the virtual machine is made and booted in namespaces of its own, which needs root")
    wanted = dependencies.read(checkout)
    base = cache.root / "lab" / f"base-{key(SUITE, *PACKAGES)}"
    python = cache.root / "lab" / f"python-{key(base.name, *wanted.requirements, *wanted.metadata.values())}"
    layers = Layers(base, python)
    if not (base.is_dir() and python.is_dir()):
        with cache.lock(progress):
            _ensure(base, f"installing Debian {SUITE} with QEMU and a kernel", progress, _make_base)
            _ensure(python, "installing Python packages", progress, lambda at: _make_python(at, base, wanted))
            _remove_others(layers)
    return layers


def _ensure(path: Path, title: str, progress: Progress, make: Callable[[Path], None]) -> None:
    if path.is_dir():
        return
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of one who was killed
    partial.mkdir(parents=True)
    try:
        with progress.step(title):
            make(partial)
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _make_base(at: Path) -> None:
    mirror = _mirror()
    signed = [f"--keyring={KEYRING}"] if KEYRING.is_file() else []
    options = ["--variant=minbase", f"--include={','.join(PACKAGES)}", *signed]
    # INITRD=No: Debian's own, which takes long to make, is not used
    run(contained([str(_debootstrap()), *options, SUITE, str(at), mirror], network=True), {"INITRD": "No"})
    shutil.rmtree(at / "var/cache/apt/archives", ignore_errors=True)
    for mount in (CHECKOUT, PYTHON, RESULTS):
        (at / mount.lstrip("/")).mkdir(parents=True)


def _make_python(at: Path, base: Path, wanted: dependencies.Dependencies) -> None:
    """Wheels for the machine's Python, chosen and unpacked by our own pip, which knows the way to the index.

    It judges conditions in requirements (`; python_version < "3.12"`) by our Python; older ones need more, not less.
    """
    version = next(path.name for path in (base / "usr/lib").glob("python3.*"))
    for path, text in wanted.metadata.items():
        (at / path).parent.mkdir(exist_ok=True)
        (at / path).write_text(text)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    platforms = [word for name in dependencies.PLATFORMS for word in ("--platform", name)]
    interpreter = ["--python-version", version.removeprefix("python"), "--implementation", "cp", *platforms]
    run([*pip, "--only-binary=:all:", *interpreter, "--target", str(at), *wanted.requirements])
    compile_ = ["python3", "-m", "compileall", "-q", "-j", "0", PYTHON]
    run(entered(base, compile_, read={}, write={PYTHON: at}))


def _debootstrap() -> Path:
    if find_tool("debootstrap") is None:
        apt("update", "-qq")
        apt("install", "-y", "-qq", "--no-install-recommends", "debootstrap")
    found = find_tool("debootstrap")
    if found is None:
        raise HarnessError("debootstrap, which makes the virtual machine's system, cannot be found or installed by apt")
    return found


def _mirror() -> str:
    """The Debian archive: DRA_SDK_DEBIAN_MIRROR, or the one that apt uses on this machine."""
    if chosen := os.environ.get("DRA_SDK_DEBIAN_MIRROR"):
        return chosen.rstrip("/")
    for refresh in (False, True):  # fresh container images come without package lists
        if refresh:
            apt("update", "-qq")
        known = apt("indextargets", "--format", "$(REPO_URI) $(ORIGIN)", "Created-By: Packages")
        if mirror := choose_mirror(known):
            return mirror
    raise HarnessError("apt knows no Debian archive on this machine: name one in DRA_SDK_DEBIAN_MIRROR")


def _remove_others(layers: Layers) -> None:
    parent = layers.base.parent
    for path in parent.iterdir():
        if path not in {layers.base, layers.python}:
            remove_unused(path)


def remove_unused(path: Path) -> None:
    """Removes a directory unless somebody holds a lock on it."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        shutil.rmtree(path)
    finally:
        os.close(handle)


def apt(*arguments: str) -> str:
    """Runs apt-get; HarnessError with what it said."""
    if shutil.which("apt-get") is None:
        raise HarnessError("the virtual machine is made of Debian packages, and this machine has no apt-get")
    return run(["apt-get", *arguments], {"DEBIAN_FRONTEND": "noninteractive"})


def run(command: Sequence[str], environment: dict[str, str] | None = None) -> str:
    """Runs a tool to its end and returns its output; HarnessError with the end of what it said."""
    both = {**os.environ, **(environment or {})}
    done = subprocess.run(
        command, env=both, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-_TAIL:]
        raise HarnessError(f"{' '.join(command)[:_TAIL]}: status {done.returncode}:\n{said}")
    return done.stdout
