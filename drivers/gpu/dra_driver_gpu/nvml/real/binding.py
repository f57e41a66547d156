"""Finds `libnvidia-ml.so.1` under a driver root and loads nvidia-ml-py on it.

nvidia-ml-py keeps its library in a module variable and knows no path but the dynamic loader's. So that the driver root
can be anywhere, and two libraries can be used in one process, each library gets a copy of the module of its own.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Final

from dra_driver_gpu.nvml.errors import LibraryNotFoundError
from dra_driver_gpu.rooted import follow
from dra_sdk import HardwareError

SONAME: Final = "libnvidia-ml.so.1"
LIBRARY_DIRS: Final = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/local/nvidia/lib64",
    "usr/lib",
)
"""Where distributions, the driver container and managed nodes keep the driver's libraries, below the driver root."""

_MODULE: Final = "pynvml"
_loaded: dict[str, ModuleType] = {}
_lock = threading.Lock()


def find_library(root: Path = Path("/")) -> str:
    """The library under this driver root, or the bare soname where the root is the process's own and has it elsewhere.

    Raises LibraryNotFoundError that names the directories that were searched.
    """
    for directory in LIBRARY_DIRS:
        found = inside(root, Path(directory, SONAME))
        if found is not None:
            return str(found)
    if root == Path("/"):
        return SONAME
    searched = ", ".join(LIBRARY_DIRS)
    raise LibraryNotFoundError("dlopen", detail=f"no {SONAME} under driver root {root} (searched {searched})")


def inside(root: Path, path: Path) -> Path | None:
    """The file at `path` below `root`, links followed as if `root` were `/`; None where there is none.

    An absolute link in a driver container, followed from outside, would end in the host's own libraries.
    """
    try:
        found = follow(root, path)
    except HardwareError:  # links in a circle
        return None
    return found if found.is_file() else None


def load(library: str) -> ModuleType:
    """nvidia-ml-py bound to the library at this path; the same module for the same path.

    Raises LibraryNotFoundError where the package is missing or the library cannot be loaded.
    """
    with _lock:
        if library not in _loaded:
            _loaded[library] = _load(library, f"{__name__}.{_MODULE}{len(_loaded)}")
        return _loaded[library]


def _load(library: str, name: str) -> ModuleType:
    origin = importlib.util.find_spec(_MODULE)
    if origin is None or origin.origin is None:
        raise LibraryNotFoundError(
            "import pynvml", detail="nvidia-ml-py is not installed; it comes with the extra dra-sdk[gpu]"
        )
    spec = importlib.util.spec_from_file_location(name, origin.origin)
    if spec is None or spec.loader is None:
        raise LibraryNotFoundError("import pynvml", detail=f"{origin.origin} cannot be imported")
    try:
        handle = ctypes.CDLL(library)
    except OSError as error:
        raise LibraryNotFoundError("dlopen", detail=f"{library} cannot be loaded: {error}") from None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # the module looks itself up while it makes its exception classes
    spec.loader.exec_module(module)
    vars(module)["nvmlLib"] = handle
    return module
