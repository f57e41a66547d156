"""Captures the files that drivers read from a node, and writes them as an archive.

It only reads. A file counts if everybody on the node may read it: what only root may read is left out, and with it
kernel addresses, DMI serial numbers and most other secrets. Unreadable, binary and large files are left out as well,
with the reason in the manifest. Without `with_ids`, identifiers of the machine and its devices are replaced.
"""

from __future__ import annotations

import gzip
import io
import os
import posixpath
import re
import stat
import tarfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from importlib.metadata import version
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from dra_sdk.errors import SettingsError
from dra_sdk.tools.node_archive.archive import (
    MANIFEST,
    MAX_CONTENT,
    MAX_FILE,
    MAX_MEMBERS,
    ArchiveManifest,
    HostDevice,
    link_problem,
)
from dra_sdk.tools.node_archive.identifiers import Identifiers

READ_SECONDS: Final = 5.0
"""How long a file may take to answer; without a limit, a driver that hangs would end no capture."""
PATTERNS: Final = (
    "/sys/devices/pci*",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/devices/cpu_*",
    "/sys/devices/virtual/kfd",
    "/sys/devices/virtual/dmi/id",
    "/sys/bus/pci/drivers",
    *(f"/sys/bus/{bus}/devices" for bus in ("pci", "auxiliary", "mdev", "cxl", "dax", "usb", "vmbus")),
    *(
        f"/sys/class/{name}"
        for name in (
            "drm",
            "accel",
            "kfd",
            "net",
            "infiniband",
            "infiniband_verbs",
            "infiniband_mad",
            "vfio",
            "vfio-dev",
        )
    ),
    *(
        f"/sys/class/{name}"
        for name in ("iommu", "mdev_bus", "nvme", "tty", "fpga_manager", "fpga_region", "uio", "dmi")
    ),
    "/sys/kernel/iommu_groups",
    "/sys/kernel/mm/hugepages",
    *(f"/sys/module/*/{name}" for name in ("uevent", "version", "srcversion", "initstate", "refcnt", "drivers")),
    "/sys/module/*/parameters",
    *(f"/proc/{name}" for name in ("cpuinfo", "meminfo", "devices", "misc", "modules", "filesystems", "version")),
    "/proc/cmdline",
    "/proc/driver",
    *(f"/proc/sys/kernel/{name}" for name in ("osrelease", "ostype", "version", "random/boot_id")),
    "/proc/sys/vm/nr_hugepages",
    "/dev",
)
"""What is captured, by path on the node; a directory with all that is in it."""
_SKIPPED: Final = (
    *(
        "power",
        "queues",
        "statistics",
        "msi_irqs",
        "leds",
        "wakeup",
        "block",
        "cpuidle",
        "cpufreq",
        "hotplug",
        "microcode",
    ),
    *("thermal_throttle", "memory[0-9]*", "ata[0-9]*", "host[0-9]*", "by-*", "shm", "mqueue", "pts", "mapper", "fd"),
)
"""Names of directories and links that are large, change all the time or have names that identify somebody."""
_NEVER_READ: Final = {
    "vpd": "vital product data: serial numbers, and slow to read",
    "rom": "a device's memory",
    "resource[0-9]*": "a device's memory",
    "edid": "a monitor's serial number",
}
_WITH_LINKED_DEVICES: Final = re.compile(r"/sys/(?:class|bus)/[^/]+(?:/devices)?/[^/]+")
"""Links to devices, whose directories are captured too."""
_VIRTUAL: Final = ("/sys/devices/virtual/net/", "/sys/devices/virtual/tty/")
"""Interfaces of pods and consoles: many, and no hardware."""
_CONFIG_HEADER: Final = 64
"""Bytes of a PCI function's `config`: what everybody may read. Capabilities after it have a serial number."""
_KERNEL_PARAMETERS: Final = re.compile(
    r"(?:\w+\.)?(?:iommu|intel_iommu|amd_iommu|iommu\.\w+|isolcpus|nohz_full|rcu_nocbs|nosmt|hugepages|hugepagesz|"
    r"default_hugepagesz|numa\w*|pci|vfio[\w.-]*|nvidia[\w.-]*|amdgpu[\w.-]*|mitigations)(?:=\S*)?"
)
"""Parameters of the kernel that are captured; others may have names, addresses and passwords."""
_PROCESS: Final = re.compile(r"/proc/(?:\d+|self|thread-self)(?:/|$)")
_ADDRESS: Final = re.compile(r" 0x[0-9a-f]{8,16}\b")
_READABLE: Final = 0o444
_CHUNK: Final = 64 << 10
"""Bytes of one read; the kernel refuses reads of /proc/sys that are much larger (ENOMEM)."""
_LEFT_OUT_SHOWN: Final = 5_000


@dataclass(slots=True)
class Captured:
    """What was read from a node; paths are absolute on the node.

    directories: the directories, empty ones too.
    files: the content of each file.
    links: the target of each symbolic link, relative.
    devices: the device nodes.
    left_out: the reason for each path that was not captured.
    source: what the archive says of the machine, see `ArchiveManifest`.
    identifiers: number of identifiers that were replaced.
    with_ids: whether the identifiers are the real ones.
    complete: False if a limit on size or number was reached.
    """

    directories: set[str] = field(default_factory=set)
    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    devices: dict[str, HostDevice] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    identifiers: int = 0
    with_ids: bool = False
    complete: bool = True

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(map(len, self.files.values()))

    def manifest(self) -> ArchiveManifest:
        """Return what the archive says beyond its files."""
        shown = dict(sorted(self.left_out.items())[:_LEFT_OUT_SHOWN])
        return ArchiveManifest(source=self.source, devices=self.devices, left_out=shown)


def capture(
    root: Path = Path("/"),
    *,
    include: Iterable[str] = (),
    with_ids: bool = False,
    read: Callable[[Path], bytes] | None = None,
) -> Captured:
    """Read the node whose files are below `root`.

    include: further patterns of absolute paths on the node, as in PATTERNS. SettingsError for one that is not absolute.
    with_ids: True keeps MAC addresses, GUIDs, UUIDs and serial numbers.
    read: reads a file; the default gives up after READ_SECONDS. OSError, also of the default, if it cannot.
    """
    patterns = (*PATTERNS, *include)
    for pattern in patterns:
        if not pattern.startswith("/") or ".." in pattern.split("/") or pattern.strip("/") == "":
            raise SettingsError(f"pattern {pattern!r} must be an absolute path below /, without `..`")
    system = os.uname()
    source = {"kernel": system.release, "machine": system.machine, "withIds": with_ids, "sdk": version("dra-sdk")}
    with _TimedReader() as reader:
        captured = Captured(with_ids=with_ids, source=source)
        walk = _Walk(root, captured, read or reader.read)
        for pattern in patterns:
            for path in sorted(root.glob(pattern.lstrip("/"))):
                walk.add("/" + str(path.relative_to(root)))
    return captured if with_ids else _without_identifiers(captured)


def write_archive(captured: Captured, path: Path) -> None:
    """Write an archive; the same content gives the same bytes. OSError if the file cannot be written."""
    content = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=content, mode="wb", filename="", mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        _add(tar, MANIFEST, tarfile.REGTYPE, captured.manifest().encoded())
        for name in sorted(captured.directories):
            _add(tar, name.lstrip("/"), tarfile.DIRTYPE)
        files = captured.files | dict.fromkeys(captured.devices, b"")
        for name in sorted(files):
            _add(tar, name.lstrip("/"), tarfile.REGTYPE, files[name])
        for name in sorted(captured.links):
            _add(tar, name.lstrip("/"), tarfile.SYMTYPE, target=captured.links[name])
    partial = path.with_name(f".{path.name}.partial")
    partial.unlink(missing_ok=True)
    try:
        with partial.open("xb") as file:  # never through a link that somebody has put there
            file.write(content.getvalue())
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def _add(tar: tarfile.TarFile, name: str, kind: bytes, content: bytes = b"", target: str = "") -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, target, len(content)
    member.mode = 0o755 if kind == tarfile.DIRTYPE else 0o644  # so that a test can change and remove the files
    tar.addfile(member, io.BytesIO(content))


class _Walk:
    """Reads directories, files and links below `root` into `captured`; follows no link."""

    def __init__(self, root: Path, captured: Captured, read: Callable[[Path], bytes]) -> None:
        self._root = root
        self._captured = captured
        self._read = read
        self._seen: set[str] = set()
        self._size = 0

    def add(self, path: str) -> None:
        """Add a file, a link, or a directory with all that is in it. Errors are noted, not raised."""
        left = [path]
        while left:
            member = left.pop()
            if member in self._seen or _PROCESS.match(member):
                continue
            self._seen.add(member)
            if len(self._seen) > MAX_MEMBERS - 1:
                self._full(member, f"an archive has at most {MAX_MEMBERS} members")
                return
            try:
                left += self._add_one(member)
            except OSError as error:
                self._captured.left_out[member] = f"cannot be read: {error.strerror or error}"

    def _add_one(self, path: str) -> Iterable[str]:
        """Add one path; what is to be added next."""
        status = self._where(path).lstat()
        if stat.S_ISLNK(status.st_mode):
            return self._add_link(path)
        if stat.S_ISDIR(status.st_mode):
            names = sorted((entry.name for entry in self._where(path).iterdir()), reverse=True)
            self._captured.directories.add(path)
            return [f"{path}/{name}" for name in names if not any(fnmatch(name, pattern) for pattern in _SKIPPED)]
        if stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode):
            kind = "c" if stat.S_ISCHR(status.st_mode) else "b"
            numbers = os.major(status.st_rdev), os.minor(status.st_rdev)
            self._captured.devices[path] = HostDevice(kind, *numbers, stat.S_IMODE(status.st_mode))
        elif stat.S_ISREG(status.st_mode) and not path.startswith("/dev/"):
            self._add_file(path, stat.S_IMODE(status.st_mode))
        else:
            self._captured.left_out[path] = "is a file, a socket or a pipe, not a device node"
        return ()

    def _add_link(self, path: str) -> Iterator[str]:
        target = str(self._where(path).readlink())
        if target.startswith("/"):
            target = posixpath.relpath(target, posixpath.dirname(path))
        if problem := link_problem(path.lstrip("/"), target):
            self._captured.left_out[path] = f"is a link that {problem}"
            return
        device = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if device.startswith(_VIRTUAL):
            self._captured.left_out[path] = "is a virtual device"
            return
        self._captured.links[path] = target
        if _WITH_LINKED_DEVICES.fullmatch(path) and device.startswith("/sys/devices/"):
            yield device
            with suppress(OSError):  # not every device has a parent
                parent = self._where(f"{device}/device").readlink()
                yield posixpath.normpath(posixpath.join(device, parent))

    def _add_file(self, path: str, mode: int) -> None:
        name = posixpath.basename(path)
        refused = next((reason for pattern, reason in _NEVER_READ.items() if fnmatch(name, pattern)), "")
        if not mode & _READABLE:  # as `unbind`, to which a driver writes
            self._captured.files[path] = b""
        elif refused or not mode & stat.S_IROTH:
            self._captured.left_out[path] = refused or "only root may read it"
        else:
            self._add_content(path, self._read(self._where(path)))

    def _add_content(self, path: str, content: bytes) -> None:
        if posixpath.basename(path) == "config" and b"\0" in content:
            content = content[:_CONFIG_HEADER]
        elif b"\0" in content or not _is_text(content):
            self._captured.left_out[path] = "is binary"
            return
        elif path == "/proc/cmdline":
            parameters = content.split()
            content = b" ".join(word for word in parameters if _KERNEL_PARAMETERS.fullmatch(word.decode())) + b"\n"
        elif path == "/proc/modules":
            content = _ADDRESS.sub(" 0x0000000000000000", content.decode()).encode()
        if len(content) > MAX_FILE:
            self._captured.left_out[path] = f"has more than {MAX_FILE >> 20} MiB"
        elif self._size + len(content) > MAX_CONTENT:
            self._full(path, f"the files of an archive have at most {MAX_CONTENT >> 20} MiB together")
        else:
            self._size += len(content)
            self._captured.files[path] = content

    def _full(self, path: str, limit: str) -> None:
        self._captured.complete = False
        self._captured.left_out[path] = limit

    def _where(self, path: str) -> Path:
        return self._root / path.lstrip("/")


class _TimedReader:
    """Reads files in a thread of its own. One that hangs in the kernel is left behind, and another one goes on."""

    def __init__(self) -> None:
        self._requests: SimpleQueue[Path | None] = SimpleQueue()
        self._answers: SimpleQueue[bytes | OSError] = SimpleQueue()

    def __enter__(self) -> _TimedReader:
        """Start the thread."""
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let the thread end; it answers nothing at this time."""
        self._requests.put(None)
        self._thread.join()

    def read(self, path: Path) -> bytes:
        """Return the content, up to one byte more than MAX_FILE; OSError also if the file does not answer in time."""
        self._requests.put(path)
        try:
            answer = self._answers.get(timeout=READ_SECONDS)
        except Empty:
            self._requests.put(None)  # its thread ends, if it ever returns
            self._start()
            raise TimeoutError(None, f"no answer within {READ_SECONDS:g} s") from None
        if isinstance(answer, OSError):
            raise answer
        return answer

    def _start(self) -> None:
        self._requests, self._answers = SimpleQueue(), SimpleQueue()
        arguments = (self._requests, self._answers)
        self._thread = threading.Thread(target=_answer, args=arguments, name="dra-sdk-capture", daemon=True)
        self._thread.start()


def _answer(requests: SimpleQueue[Path | None], answers: SimpleQueue[bytes | OSError]) -> None:
    while (path := requests.get()) is not None:
        try:
            answers.put(_content(path))
        except OSError as error:
            answers.put(error)


def _content(path: Path) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        content = b""  # sysfs says another size than that of the content
        while len(content) <= MAX_FILE and (part := os.read(descriptor, _CHUNK)):
            content += part
        return content
    finally:
        os.close(descriptor)


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _without_identifiers(captured: Captured) -> Captured:
    """Return the same with made-up identifiers, in content, names, targets of links and reasons."""
    known = Identifiers()
    texts = {path: content.decode() for path, content in captured.files.items() if b"\0" not in content}
    for path, text in sorted(texts.items()):
        known.learn(path, text)
    return replace(
        captured,
        directories=set(map(known.replaced, sorted(captured.directories))),
        files={
            known.replaced(path): known.replaced(texts[path], path).encode() if path in texts else content
            for path, content in sorted(captured.files.items())
        },
        links={known.replaced(path): known.replaced(target) for path, target in sorted(captured.links.items())},
        devices={known.replaced(path): device for path, device in sorted(captured.devices.items())},
        left_out={known.replaced(path): reason for path, reason in sorted(captured.left_out.items())},
        identifiers=known.count,
    )
