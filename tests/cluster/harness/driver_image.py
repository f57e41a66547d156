"""The image of the drivers, built by buildah from deploy/Containerfile without a daemon and without a registry.

Its base is a Debian tree in the cache. An image is kept in the cache as an archive, whose name ends in a hash of all
that it is built from. It is never run with this machine's Python.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.lab.harness.layers import System, key, make_base

from .cache import Cache
from .debian import IMAGE, require, run
from .errors import HarnessError
from .runtime import Runtime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .cluster import Cluster
    from .progress import Progress

ROOT: Final = Path(__file__).parents[3]
REPOSITORY: Final = "localhost/dra-sdk"
BASE: Final = System("image", "the image of the drivers", "bookworm", ("python3", "python3-venv", "ca-certificates"))
KEPT: Final = 4
"""Archives of 150 MB that stay in the cache, the newest."""
_CERTIFICATES: Final = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE")
_BUNDLE: Final = Path("/etc/ssl/certs/ca-certificates.crt")
_INSIDE: Final = "/run/build"
"""Where RUN finds the certificates of this machine, without which pip may not reach its index. They stay outside."""
_RECIPE: Final = "1"
"""Part of each archive's hash. Raise it when the code below builds in another way."""


def ensure_image(cache: Cache, progress: Progress, checkout: Path = ROOT) -> Path:
    """Returns the archive of the image of a checkout; builds it if it is not in the cache."""
    target = cache.root / BASE.name / f"dra-sdk-{content_key(checkout)}.tar"
    if target.is_file():
        os.utime(target)
        return target
    require(BASE.title, IMAGE)
    with Cache(target.parent).lock(progress):  # not the lock of the binaries, whose build may take long
        if not target.is_file():
            base = _ensure_base(cache, progress)
            with progress.step(f"building {BASE.title}"):
                _build(base, checkout, target)
            _remove_old(target)
    return target


def checkout_of(revision: str, folder: Path) -> Path | None:
    """Writes the files of an earlier revision to `folder`, and returns it; None if this repository does not have it."""
    git = ["git", "-C", str(ROOT), "-c", f"safe.directory={ROOT}"]
    done = subprocess.run([*git, "cat-file", "-e", f"{revision}^{{commit}}"], capture_output=True, check=False)
    if done.returncode != 0:
        return None
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar")
    run([*git, "archive", f"--output={archive}", revision])
    run(["tar", "--extract", f"--file={archive}", f"--directory={folder}"])
    archive.unlink()
    return folder


def import_image(cluster: Cluster, cache: Cache, archive: Path, *tags: str) -> None:
    """Puts the image of an archive into the cluster's containerd, under each of these tags."""
    ctr = [str(Runtime.under(cache.runtime).bin / "ctr"), f"--address={cluster.containerd_socket}"]
    images = [*ctr, "--namespace=k8s.io", "images"]
    run([*images, "import", str(archive)])
    for tag in tags:
        run([*images, "tag", "--force", f"{REPOSITORY}:built", f"{REPOSITORY}:{tag}"])


def content_key(checkout: Path) -> str:
    """Returns the hash of all files that the Containerfile may copy, of their modes, and of the base."""
    digest = hashlib.sha256(key(BASE.suite, *BASE.packages, _RECIPE).encode())
    for path in [checkout / "deploy/Containerfile", checkout / ".dockerignore", *sorted(_context(checkout))]:
        digest.update(f"\0{path.relative_to(checkout)}\0{path.stat().st_mode & 0o111}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:12]


def _context(checkout: Path) -> Iterator[Path]:
    """The files that `.dockerignore` lets through: it refuses all but some, and of these some."""
    written = (checkout / ".dockerignore").read_text().splitlines()
    lines = [each for each in written if each not in {"", "*"} and each[0] != "#"]
    for allowed in (checkout / each[1:] for each in lines if each[0] == "!"):
        for path in [allowed] if allowed.is_file() else allowed.rglob("*"):
            inner = str(path.relative_to(checkout))
            refused = (each.removeprefix("**/") for each in lines if each[0] != "!")
            if path.is_file() and not any(fnmatch(part, each) for each in refused for part in _parents(inner)):
                yield path


def _parents(inner: str) -> list[str]:
    """The path, each directory of it, and the name of each: what a line of `.dockerignore` may match."""
    path = Path(inner)
    return [str(each) for each in (path, *path.parents)] + list(path.parts)


def _ensure_base(cache: Cache, progress: Progress) -> Path:
    path = cache.root / BASE.name / f"base-{key(BASE.suite, *BASE.packages)}"
    if not path.is_dir():
        partial = path.with_name(f".{path.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)  # from a run that was killed
        partial.mkdir(parents=True)
        with progress.step(f"installing Debian {BASE.suite} for {BASE.title}"):
            make_base(partial, BASE)
        partial.rename(path)
    return path


def _build(base: Path, checkout: Path, target: Path) -> None:
    """Builds beside the archive's place, with a storage of its own, and renames the result into place."""
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        work = Path(temporary)
        # The cluster's containerd needs overlayfs as well. By vfs, each layer would be a copy of all below it.
        places = [f"--root={work / 'storage'}", f"--runroot={work / 'run'}", "--storage-driver=overlay"]
        buildah = ["buildah", *places]
        try:
            container = run([*buildah, "from", "scratch"]).strip()
            run([*buildah, "add", "--quiet", container, str(base), "/"])
            run([*buildah, "commit", "--quiet", container, "localhost/debian"])
            mounts = _pip_settings(work / "pip")
            options = ["--isolation=chroot", "--layers=false", "--build-arg=BASE=localhost/debian", *mounts]
            file = checkout / "deploy/Containerfile"
            run([*buildah, "build", *options, f"--file={file}", f"--tag={REPOSITORY}:built", str(checkout)])
            partial = work / "image.tar"
            run([*buildah, "push", "--quiet", f"{REPOSITORY}:built", f"docker-archive:{partial}:{REPOSITORY}:built"])
            partial.rename(target)
        finally:
            subprocess.run([*buildah, "rm", "--all"], capture_output=True, check=False)
            subprocess.run(["umount", str(work / "storage/overlay")], capture_output=True, check=False)


def _pip_settings(folder: Path) -> list[str]:
    """Options by which pip in RUN uses the certificates and the index of this machine's pip. No layer has them."""
    folder.mkdir()
    bundle = next((Path(os.environ[each]) for each in _CERTIFICATES if os.environ.get(each)), _BUNDLE)
    if not bundle.is_file():
        raise HarnessError(f"{bundle} has no certificates: install the package ca-certificates")
    shutil.copyfile(bundle, folder / "ca.crt")
    lines = ["[global]", f"cert = {_INSIDE}/ca.crt"]
    if index := os.environ.get("PIP_INDEX_URL"):
        lines.append(f"index-url = {index}")
    (folder / "pip.conf").write_text("\n".join(lines) + "\n")
    return [f"--volume={folder}:{_INSIDE}:ro", f"--volume={folder / 'pip.conf'}:/etc/pip.conf:ro"]


def _remove_old(newest: Path) -> None:
    archives = sorted(newest.parent.glob("dra-sdk-*.tar"), key=lambda each: each.stat().st_mtime, reverse=True)
    for each in archives[KEPT:]:
        with suppress(FileNotFoundError):
            each.unlink()
