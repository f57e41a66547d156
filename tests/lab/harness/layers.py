"""Debian systems in the cache, and programs that run in them, in namespaces of their own.

A system has two layers: Debian, and the Python packages of the project for Debian's Python. Each is a directory whose
name ends in a hash of what it is made from, so a changed recipe makes a new directory. A layer is made beside its
place and renamed when it is complete. When a new one was made, the system's layers of other recipes are removed, unless
something runs in them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.harness.debian import KEYRING, NAMESPACES, TO_INSTALL, find_tool, mirror, require, run
from tests.cluster.harness.errors import HarnessError
from tests.distributions import Distribution, distributions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.cluster.harness.cache import Cache
    from tests.cluster.harness.progress import Progress

CHECKOUT, PYTHON, RESULTS = "/lab/checkout", "/lab/python", "/lab/results"
"""Where a system has the checkout, the Python packages, and a directory to write to."""
KUBERNETES, RUNTIME = "/lab/kube", "/lab/runtime"
"""Where the virtual machine has the kubelet, and containerd with the CNI plugins."""
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
"""Platforms of wheels that the systems' C library can load."""
_MODULES = ("dra_sdk", "drivers", "tests")
_PREFIX = "dra-sdk-lab-"
_GRACE = 10.0
"""Seconds until a new directory has its lock."""
_RECIPE = "2"
"""Part of each layer's hash. Raise it when the code below makes layers in another way."""
_ENTER = """\
set -e
root=$1; shift
mount --bind "$root" "$root"
while [ "$1" != -- ]; do
  mount --bind "$2" "$root$3"
  [ "$1" = rw ] || mount -o "remount,bind,$1" "$root$3"
  shift 3
done
shift
mount -o remount,bind,ro "$root"
for each in tmp run dev/shm; do
  [ ! -d "$root/$each" ] || mount -t tmpfs tmpfs "$root/$each"
done
[ ! -d "$root/dev/pts" ] || mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
mount -t proc proc "$root/proc"
exec chroot "$root" "$@"
"""


@dataclass(frozen=True)
class System:
    """A Debian system that tests run in.

    name: its directory in the cache.
    title: what messages call it, such as `the virtual machine`.
    suite: the Debian suite.
    packages: the Debian packages beside those of debootstrap's `minbase`. `python3` is one of them.
    mounts: empty directories to mount others at, beside CHECKOUT, PYTHON and RESULTS.
    kernel: the Debian suite of its kernel; empty if it has none.
    """

    name: str
    title: str
    suite: str
    packages: tuple[str, ...]
    mounts: tuple[str, ...] = ()
    kernel: str = ""


LAB = System(
    "lab",
    "the virtual machine",
    "trixie",
    (
        *("qemu-system-x86", "busybox-static", "kmod", "iproute2", "python3", "e2fsprogs", "runc"),
        *("ibverbs-providers", "ibverbs-utils", "rdmacm-utils", "perftest"),
    ),
    mounts=(KUBERNETES, RUNTIME),
    kernel="sid",
)
"""What the virtual machine is booted from. In sid's kernel, RDMA crosses network namespaces; in that of trixie not."""


@dataclass(frozen=True)
class Layers:
    """The directories of a system.

    base: the root of the Debian system.
    python: the Python packages, for `PYTHONPATH`.
    """

    base: Path
    python: Path

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keeps other runs from removing the layers. HarnessError if one was removed before."""
        with ExitStack() as held:
            for path in (self.base, self.python):
                try:
                    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
                    held.callback(os.close, handle)
                    fcntl.flock(handle, fcntl.LOCK_SH)
                    os.stat(path)  # another run may have removed it before we had the lock
                except FileNotFoundError:
                    raise HarnessError(f"{path} was removed by another run, which has another recipe") from None
            yield


@dataclass(frozen=True)
class PythonPackages:
    """What a system's Python gets.

    requirements: requirements for pip.
    metadata: the `.dist-info` files of our own distributions by path, which declare dependencies and entry points.
    """

    requirements: tuple[str, ...]
    metadata: dict[str, str]


def key(*parts: str) -> str:
    """Returns the hash that tells recipes apart."""
    return hashlib.sha256("\0".join((_RECIPE, *parts)).encode()).hexdigest()[:12]


def ensure_layers(cache: Cache, checkout: Path, progress: Progress, system: System = LAB) -> Layers:
    """Returns the layers of a system; makes them first if they are missing.

    It needs root, and to make them the Debian archive and the package index. HarnessError if something is missing.
    """
    if os.geteuid() != 0:
        raise HarnessError(f"{system.title} is installed and runs in namespaces, which needs root")
    wanted = python_packages(checkout)
    recipe = (system.suite, *system.packages, *system.mounts, *([system.kernel] if system.kernel else []))
    base = cache.root / system.name / f"base-{key(*recipe)}"
    python = base.with_name(f"python-{key(base.name, *wanted.requirements, *wanted.metadata.values())}")
    layers = Layers(base, python)
    require(system.title, NAMESPACES if base.is_dir() else (*NAMESPACES, *TO_INSTALL))
    if not (base.is_dir() and python.is_dir()):
        with cache.lock(progress):
            title = f"installing Debian {system.suite} for {system.title}"
            _ensure(base, title, progress, lambda at: make_base(at, system))
            _ensure(python, "installing Python packages", progress, lambda at: make_python(at, base, wanted))
            _remove_others(layers)
    return layers


def compile_checkout(layers: Layers, checkout: Path, progress: Progress) -> None:
    """Compiles the modules of the checkout that have changed, for the system's Python.

    The virtual machine would take a minute for it: every instruction is emulated there.
    """
    compile_ = ["python3", "-m", "compileall", "-q", "-j", "0", *(f"{CHECKOUT}/{name}" for name in _MODULES)]
    with progress.step("compiling the checkout's modules"):
        run(in_root(layers.base, compile_, read={}, write={CHECKOUT: checkout}))


def python_packages(checkout: Path) -> PythonPackages:
    """Return what the distributions of a checkout ask for: dependencies and every extra, so each test can import all.

    Our own sources are those of the checkout, as with an editable installation.
    """
    ours = distributions(checkout)
    files: dict[str, str] = {}
    for one in ours:
        directory = f"{one.name.replace('-', '_')}-{one.project['version']}.dist-info"
        files |= {f"{directory}/METADATA": metadata(one), f"{directory}/entry_points.txt": entry_points(one)}
    return PythonPackages(tuple(dict.fromkeys(line for one in ours for line in one.requirements)), files)


def metadata(distribution: Distribution) -> str:
    """Return the file `METADATA` of a distribution (core metadata specification of PyPA)."""
    project = distribution.project
    lines = ["Metadata-Version: 2.1", f"Name: {project['name']}", f"Version: {project['version']}"]
    lines += [f"Requires-Dist: {line}" for line in project["dependencies"]]
    for extra, requirements in project.get("optional-dependencies", {}).items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {line}; extra == "{extra}"' for line in requirements)]
    return "".join(f"{line}\n" for line in lines)


def entry_points(distribution: Distribution) -> str:
    """Return the file `entry_points.txt` of a distribution (entry points specification of PyPA)."""
    lines = []
    for group, entries in distribution.entry_points.items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()), ""]
    return "\n".join(lines)


def ending_with_this_thread() -> list[str]:
    """Returns the words before a command line that make the kernel kill the process when its starter's thread ends."""
    return [str(find_tool("setpriv")), "--pdeathsig", "KILL"]


def in_namespaces(command: Sequence[str], *, network: bool = False) -> list[str]:
    """Returns the command line that runs `command` in namespaces of its own, so that nothing of it can stay behind.

    Its mounts end with its last process. Its processes end with the first of them, which the kernel kills when the
    thread that started it ends: start it from a thread that lives long enough. Without `network` it has no network
    interface but a loopback device that is down.
    """
    spaces = ["--mount", "--pid", "--ipc", *([] if network else ["--net"])]
    return [*ending_with_this_thread(), "unshare", *spaces, "--fork", "--kill-child", "--mount-proc", *command]


def in_root(
    root: Path, command: Sequence[str], *, read: Mapping[str, Path], write: Mapping[str, Path], network: bool = False
) -> list[str]:
    """Returns the command line that runs `command` with `root` as its root directory, in namespaces of its own.

    The root is read-only, with /tmp, /run and /dev/shm in memory, and with pseudo-terminals of its own. `read` and
    `write` mount other directories at these paths of it, read-only and writable. Without `network` it has no network
    interface.
    """
    mounts = [*(("ro", path, at) for at, path in read.items()), *(("rw", path, at) for at, path in write.items())]
    words = [str(word) for mount in mounts for word in mount]
    return in_namespaces(["sh", "-c", _ENTER, "enter", str(root), *words, "--", *command], network=network)


def remove_unused(path: Path) -> None:
    """Removes a directory unless another process holds a lock on it."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        shutil.rmtree(path)
    finally:
        os.close(handle)


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """Makes a directory for one run. Removes those of killed runs, whose lock nobody holds."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(FileNotFoundError):  # another run removed it first
            if time.time() - path.stat().st_mtime > _GRACE:  # a younger one may not have its lock yet
                remove_unused(path)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as temporary:
        handle = os.open(temporary, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            yield Path(temporary)
        finally:
            os.close(handle)


def _ensure(path: Path, title: str, progress: Progress, make: Callable[[Path], None]) -> None:
    if path.is_dir():
        return
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # from a run that was killed
    partial.mkdir(parents=True)
    try:
        with progress.step(title):
            make(partial)
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def make_base(at: Path, system: System) -> None:
    """Installs Debian into the directory `at`."""
    signed = [f"--keyring={KEYRING}"] if KEYRING.is_file() else []
    options = ["--variant=minbase", f"--include={','.join(system.packages)}", *signed]
    command = [str(find_tool("debootstrap")), *options, system.suite, str(at), mirror()]
    run(in_namespaces(command, network=True), {"INITRD": "No"})  # Debian's initrd takes long to make and is not used
    if system.kernel:
        _install_kernel(at, system.kernel)
    for name in ("var/cache/apt/archives", "var/lib/apt/lists"):
        shutil.rmtree(at / name, ignore_errors=True)
    for mount in (CHECKOUT, PYTHON, RESULTS, *system.mounts):
        (at / mount.lstrip("/")).mkdir(parents=True)


def _install_kernel(at: Path, suite: str) -> None:
    """Installs the kernel of another suite, with nothing else of it but what the kernel needs.

    Signatures are checked, dates are not, as debootstrap does: a mirror may lag behind.
    """
    (at / f"etc/apt/sources.list.d/{suite}.list").write_text(f"deb {mirror()} {suite} main\n")
    install = f"""\
mount -t proc proc /proc
apt-get update -qq -o Acquire::Check-Valid-Until=false
apt-get install -y -qq --no-install-recommends -t {suite} linux-image-amd64
"""
    enter = ["chroot", str(at), "sh", "-ec", install]
    run(in_namespaces(enter, network=True), {"INITRD": "No", "DEBIAN_FRONTEND": "noninteractive"})


def make_python(at: Path, base: Path, wanted: PythonPackages) -> None:
    """Unpacks wheels for the system's Python with the pip of this machine, which can reach the package index.

    pip judges markers such as `python_version < "3.12"` by its own Python. An older Python only adds packages.
    """
    version = next(path.name for path in (base / "usr/lib").glob("python3.*"))
    for path, text in wanted.metadata.items():
        (at / path).parent.mkdir(exist_ok=True)
        (at / path).write_text(text)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    platforms = [word for name in PLATFORMS for word in ("--platform", name)]
    interpreter = ["--python-version", version.removeprefix("python"), "--implementation", "cp", *platforms]
    run([*pip, "--only-binary=:all:", *interpreter, "--target", str(at), *wanted.requirements])
    compile_ = ["python3", "-m", "compileall", "-q", "-j", "0", PYTHON]
    run(in_root(base, compile_, read={}, write={PYTHON: at}))


def _remove_others(layers: Layers) -> None:
    for path in layers.base.parent.iterdir():
        if path not in {layers.base, layers.python}:
            remove_unused(path)
