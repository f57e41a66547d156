"""Builds the Kubernetes binaries from the Go module `k8s.io/kubernetes`, once per version.

The module is made to be built inside its own repository: it names its siblings (`k8s.io/api`, …) by relative paths.
A small module of ours replaces each sibling by its published version. So the same programs are built from the module
proxy alone, without a checkout of several gigabytes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from .debian import TO_BUILD, find_go, require
from .errors import HarnessError

if TYPE_CHECKING:
    from .cache import Cache, Version
    from .progress import Progress, Step

BINARIES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
_STAGED = re.compile(r"^\s*(?:replace\s+)?(k8s\.io/[a-z0-9-]+) => \./staging/", re.MULTILINE)
_KEPT_ERROR_LINES = 30


def missing(folder: Path) -> list[str]:
    """Returns the binaries that are not in `folder` yet. One that is there is complete: it was renamed into place."""
    return [name for name in BINARIES if not os.access(folder / name, os.X_OK)]


def ensure_kubernetes(cache: Cache, version: Version, progress: Progress) -> Path:
    """Returns the folder with all BINARIES of `version`; builds those that are missing.

    An interrupted build continues where it stopped: finished binaries stay, and Go keeps its own cache of packages.
    """
    folder = cache.kube(version)
    if not missing(folder):
        return folder
    with cache.lock(progress):
        if todo := missing(folder):
            require("the build of Kubernetes", TO_BUILD)
            go = str(find_go())
            source = _ensure_source(go, cache, version, progress)
            folder.mkdir(parents=True, exist_ok=True)
            for name in todo:
                _build(go, source, folder / name, version, progress)
    return folder


def go_mod(version: Version, upstream: str) -> str:
    """Returns the go.mod of the module that builds the binaries, given the go.mod of `k8s.io/kubernetes`."""
    directives = [line for line in upstream.splitlines() if re.fullmatch(r"go \S+|godebug default=\S+", line)]
    lines = ["module kubebinaries", *directives, f"require k8s.io/kubernetes v{version}"]
    lines += [f"replace {name} => {name} {version.staging}" for name in sorted(set(_STAGED.findall(upstream)))]
    lines += [f"tool k8s.io/kubernetes/cmd/{name}" for name in BINARIES]
    return "\n".join(lines) + "\n"


def link_flags(version: Version) -> str:
    """Returns linker flags that strip the binary and set the version that the API reports and clients compare."""
    flags = ["-s", "-w"]
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        for name, value in (("gitVersion", f"v{version}"), ("gitMajor", "1"), ("gitMinor", str(version.minor))):
            flags += ["-X", f"{package}.{name}={value}"]
    return " ".join(flags)


def _go_environment() -> dict[str, str]:
    """Returns the caller's environment with static binaries, no workspace, and a newer toolchain if Go is too old."""
    return {"GOTOOLCHAIN": "auto", **os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}


def run_go(go: str, folder: Path, *args: str) -> str:
    """Runs a go command in `folder` and returns its output."""
    done = subprocess.run([go, *args], cwd=folder, env=_go_environment(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessError(f"go {' '.join(args)} failed:\n{_last_lines((done.stderr or done.stdout).splitlines())}")
    return done.stdout


def _ensure_source(go: str, cache: Cache, version: Version, progress: Progress) -> Path:
    """Returns the folder of the small module, with its dependencies resolved by `go mod tidy`."""
    source = cache.source(version)
    if (source / "go.mod").is_file() and (source / "go.sum").is_file():
        return source
    source.parent.mkdir(parents=True, exist_ok=True)
    with progress.step(f"resolving Kubernetes {version}"), tempfile.TemporaryDirectory(dir=source.parent) as temporary:
        work = Path(temporary) / "module"
        work.mkdir()
        (work / "go.mod").write_text("module kubebinaries\n")
        found = json.loads(run_go(go, work, "mod", "download", "-json", f"k8s.io/kubernetes@v{version}"))
        (work / "go.mod").write_text(go_mod(version, Path(found["GoMod"]).read_text()))
        run_go(go, work, "mod", "tidy")
        shutil.rmtree(source, ignore_errors=True)
        work.rename(source)
    return source


def _build(go: str, source: Path, target: Path, version: Version, progress: Progress) -> None:
    """Builds one binary beside its place, checks the version that it prints, and renames it into place."""
    partial = target.with_name(f".{target.name}.partial")
    command = [go, "build", "-v", "-trimpath", "-ldflags", link_flags(version), "-o", str(partial)]
    with progress.step(f"building {target.name} {version}") as step:
        _run_build([*command, f"k8s.io/kubernetes/cmd/{target.name}"], source, step, progress)
        arguments = ["version", "--client"] if target.name == "kubectl" else ["--version"]
        said = subprocess.run([str(partial), *arguments], capture_output=True, text=True, check=False)
        if f"v{version}" not in said.stdout:
            raise HarnessError(f"{partial} does not print version v{version}: {said.stdout}{said.stderr}")
        partial.replace(target)


def _run_build(command: list[str], source: Path, step: Step, progress: Progress) -> None:
    """Runs `go build -v`, which prints each package that it compiles, and shows their number as progress."""
    lines: list[str] = []
    with subprocess.Popen(
        command, cwd=source, env=_go_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as build:
        try:
            assert build.stderr is not None
            for line in build.stderr:
                lines.append(line.rstrip())
                step.detail = f"{len(lines)} packages"
                progress.debug(lines[-1])
        except BaseException:
            build.terminate()
            raise
    if build.returncode != 0:
        raise HarnessError(f"go build of {command[-1]} failed:\n{_last_lines(lines)}")


def _last_lines(lines: list[str]) -> str:
    return "\n".join(lines[-_KEPT_ERROR_LINES:])
