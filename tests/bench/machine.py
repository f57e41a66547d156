"""What the numbers were measured on: the machine, the file systems, the versions."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

_SYNCS = 50
_PACKAGES = ("dra-sdk", "grpcio", "protobuf", "kubernetes", "pydantic")
_MODULES = ("k8s.io/dynamic-resource-allocation", "k8s.io/client-go", "google.golang.org/grpc")


def describe_machine(state: Path, cdi: Path) -> dict[str, str]:
    """CPU, memory, kernel, and where state files and CDI specs lie, with the cost of a durable write there."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cpu": processor(),
        "memory": f"{memory:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load": f"{os.getloadavg()[0]:.1f} at the start",
        "state files": _describe_folder(state),
        "CDI specs": _describe_folder(cdi),
    }


def describe_versions(kubernetes: str, godriver: Path) -> dict[str, str]:
    """Both sides' language and libraries, and the API server's release."""
    found = {"kubernetes": kubernetes, "python": platform.python_version()}
    found |= {f"python {name}": version(name) for name in _PACKAGES}
    listing = subprocess.run(["go", "version", "-m", str(godriver)], capture_output=True, text=True, check=True).stdout
    found["go"] = listing.split()[1]
    for line in listing.splitlines():
        words = line.split()
        if words[:1] == ["dep"] and words[1] in _MODULES:
            found[f"go {words[1]}"] = words[2]
    return found


def processor() -> str:
    """How many of which CPU."""
    return f"{os.cpu_count()} x {_cpu_model()}"


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown CPU"


def _describe_folder(folder: Path) -> str:
    return f"{file_system(folder)}, {_sync_cost(folder) * 1000:.2f} ms per durable write"


def file_system(folder: Path) -> str:
    """The type of the file system `folder` is on, from the longest mount point above it (proc(5), mountinfo)."""
    best, kind = "", "unknown"
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        point = before.split()[4]
        if len(point) >= len(best) and folder.resolve().is_relative_to(point):
            best, kind = point, after.split()[0]
    return kind


def _sync_cost(folder: Path) -> float:
    """The median time of writing 1 KiB to a new file, fsync, rename and fsync of the folder."""
    times = []
    for _ in range(_SYNCS):
        began = time.perf_counter()
        _write_durably(folder / "probe")
        times.append(time.perf_counter() - began)
    (folder / "probe").unlink()
    return median(times)


def _write_durably(path: Path) -> None:
    partial = path.with_suffix(".partial")
    with partial.open("wb") as file:
        file.write(b"x" * 1024)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
