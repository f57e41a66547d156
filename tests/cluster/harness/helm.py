"""Builds Helm from its Go module, once per version."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .build import run_go
from .debian import TO_BUILD, find_go, require

if TYPE_CHECKING:
    from .cache import Cache
    from .progress import Progress

VERSION: Final = "3.22.0"
KUBERNETES_MINOR: Final = "37"
"""The release whose client this Helm has."""
_PACKAGE: Final = "helm.sh/helm/v3/cmd/helm"


def helm_path(cache: Cache) -> Path:
    """Returns where the program is, or will be."""
    return cache.root / "helm" / VERSION / "helm"


def ensure_helm(cache: Cache, progress: Progress) -> Path:
    """Returns the path of Helm; builds it if it is not in the cache."""
    path = helm_path(cache)
    if path.is_file():
        return path
    require("the build of Helm", TO_BUILD)
    go = str(find_go())
    with cache.lock(progress):
        path.parent.mkdir(parents=True, exist_ok=True)
        with progress.step(f"building helm {VERSION}"), tempfile.TemporaryDirectory(dir=path.parent) as temporary:
            work = Path(temporary)
            (work / "go.mod").write_text("module helmbinary\n")
            run_go(go, work, "get", "-tool", f"{_PACKAGE}@v{VERSION}")
            run_go(go, work, "build", "-trimpath", "-ldflags", _link_flags(), "-o", "helm", _PACKAGE)
            (work / "helm").rename(path)
    return path


def _link_flags() -> str:
    """Returns the linker flags of Helm's own Makefile: its version, and the Kubernetes release that it renders for."""
    flags = ["-s", "-w", "-X", f"helm.sh/helm/v3/internal/version.version=v{VERSION}"]
    for package in ("helm.sh/helm/v3/pkg/chartutil", "helm.sh/helm/v3/pkg/lint/rules"):
        for name, value in (("Major", "1"), ("Minor", KUBERNETES_MINOR)):
            flags += ["-X", f"{package}.k8sVersion{name}={value}"]
    return " ".join(flags)
