"""Writing a kubeconfig that leads to the simulated API server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from pathlib import Path

_NAME = "simulator"


def write(path: Path, url: str, *, token: str | None = None, ca: Path | None = None) -> Path:
    """Writes the file, readable by its owner only, and returns `path`."""
    cluster: dict[str, Any] = {"server": url}
    if ca:
        cluster["certificate-authority"] = str(ca)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _NAME, "cluster": cluster}],
        "users": [{"name": _NAME, "user": {"token": token} if token else {}}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": _NAME}}],
        "current-context": _NAME,
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path
