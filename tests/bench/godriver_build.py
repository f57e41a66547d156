"""Builds the Go halves of the comparisons, once per state of their sources, outside the checkout."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.cluster.harness.cache import Cache
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.progress import Progress

SOURCES = Path(__file__).parent / "godriver"
MATCHING = Path(__file__).parent / "matching" / "gomatch"
_KEPT_ERROR_LINES = 30


def ensure_godriver(cache: Cache, progress: Progress) -> Path:
    """Return the driver's binary, building it where needed; HarnessError with the compiler's words."""
    return _ensure(SOURCES, cache, progress)


def ensure_gomatch(cache: Cache, progress: Progress) -> Path:
    """The same for the program that allocates claims."""
    return _ensure(MATCHING, cache, progress)


def _ensure(sources: Path, cache: Cache, progress: Progress) -> Path:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
    if go is None:
        raise HarnessError("the Go half is built from source and needs Go (1.21 or newer): put `go` on PATH")
    folder = cache.root / "bench" / _hash(sources)
    binary = folder / sources.name
    if os.access(binary, os.X_OK):
        return binary
    with cache.lock(progress), progress.step(f"building {sources.name}"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            partial = Path(temporary) / binary.name
            _build(go, sources, partial)
            partial.rename(binary)
    return binary


def _hash(sources: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(sources.iterdir()):
        if path.name in {"go.mod", "go.sum"} or path.suffix == ".go":
            digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _build(go: str, sources: Path, target: Path) -> None:
    environment = {"GOTOOLCHAIN": "auto", **os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly"}
    command = [go, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", str(target), "."]
    done = subprocess.run(command, cwd=sources, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError("go build failed:\n" + "\n".join(done.stderr.splitlines()[-_KEPT_ERROR_LINES:]))
