"""Builds the Go driver, once per state of its sources, outside the checkout."""

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
_KEPT_ERROR_LINES = 30


def ensure_godriver(cache: Cache, progress: Progress) -> Path:
    """Return the binary, building it where these sources were not built yet; HarnessError with the compiler's words."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin:/usr/lib/go/bin")
    if go is None:
        raise HarnessError("the Go driver is built from source and needs Go (1.21 or newer): put `go` on PATH")
    folder = cache.root / "bench" / _hash()
    binary = folder / "godriver"
    if os.access(binary, os.X_OK):
        return binary
    with cache.lock(progress), progress.step("building the Go driver"):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            partial = Path(temporary) / binary.name
            _build(go, partial)
            partial.rename(binary)
    return binary


def _hash() -> str:
    digest = hashlib.sha256()
    for path in sorted(SOURCES.iterdir()):
        if path.name in {"go.mod", "go.sum"} or path.suffix == ".go":
            digest.update(f"{path.name}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _build(go: str, target: Path) -> None:
    environment = {"GOTOOLCHAIN": "auto", **os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "-mod=readonly"}
    command = [go, "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", str(target), "."]
    done = subprocess.run(command, cwd=SOURCES, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError("go build failed:\n" + "\n".join(done.stderr.splitlines()[-_KEPT_ERROR_LINES:]))
