"""The only image of the cluster: busybox, as an OCI image layout in a tar file (OCI image-spec 1.0)."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from typing import Any

PAUSE = "localhost/pause:1"
BUSYBOX = "localhost/busybox:1"
APPLETS = (
    *("[", "awk", "basename", "cat", "chgrp", "chmod", "chown", "cp", "cut", "date", "dd", "df"),
    *("dirname", "du", "echo", "env", "expr", "false", "find", "free", "grep", "head", "hexdump", "hostname"),
    *("id", "ifconfig", "ip", "kill", "ln", "ls", "lsof", "md5sum", "mkdir", "mknod", "mount", "mv"),
    *("nc", "netstat", "nproc", "od", "ping", "printenv", "printf", "ps", "pwd", "readlink", "realpath", "rm"),
    *("rmdir", "route", "sed", "seq", "sh", "sha256sum", "sleep", "sort", "stat", "sync", "tail", "tar"),
    *("taskset", "tee", "test", "time", "timeout", "top", "touch", "tr", "true", "umount", "uname", "uniq"),
    *("wc", "wget", "which", "xargs"),
)
# A shell that is process 1 ignores signals without a trap, and each deleted pod would wait for its grace period.
COMMAND = ["sh", "-c", "trap 'exit 0' TERM INT; sleep 1000000000 & wait"]
_FILES = {
    "etc/passwd": b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
    "etc/group": b"root:x:0:\nnogroup:x:65534:\n",
}
_FOLDERS = ("bin", "dev", "etc", "proc", "sys", "tmp")
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


def image_tar(busybox: bytes, architecture: str) -> bytes:
    """Returns a tar that `ctr images import` reads: one image under the names PAUSE and BUSYBOX.

    `busybox` is a static executable, and `architecture` the Go name of its processor (`amd64`, `arm64`). The same input
    gives the same bytes.
    """
    layer = _layer(busybox)
    config = _json(
        {
            "architecture": architecture,
            "os": "linux",
            "config": {"Cmd": COMMAND, "Env": ["PATH=/bin"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    )
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": _MANIFEST,
            "config": _descriptor(_CONFIG, config),
            "layers": [_descriptor(_LAYER, layer)],
        }
    )
    index = {"schemaVersion": 2, "manifests": [_named(manifest, PAUSE), _named(manifest, BUSYBOX)]}
    blobs = {f"blobs/sha256/{_digest(blob).removeprefix('sha256:')}": blob for blob in (layer, config, manifest)}
    return _tar({"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index), **blobs})


def _layer(busybox: bytes) -> bytes:
    links = {f"bin/{name}": "busybox" for name in APPLETS}
    return _tar({**_FILES, "bin/busybox": busybox}, folders=_FOLDERS, links=links, mode=0o755)


def _tar(
    files: dict[str, bytes], *, folders: tuple[str, ...] = (), links: dict[str, str] | None = None, mode: int = 0o644
) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in folders:
            tar.addfile(_entry(name, type=tarfile.DIRTYPE, mode=0o1777 if name == "tmp" else 0o755))
        for name, content in files.items():
            tar.addfile(_entry(name, mode=mode, size=len(content)), io.BytesIO(content))
        for name, target in (links or {}).items():
            tar.addfile(_entry(name, type=tarfile.SYMTYPE, linkname=target, mode=0o777))
    return buffer.getvalue()


def _entry(name: str, **fields: Any) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(entry, field, value)
    return entry


def _named(manifest: bytes, name: str) -> dict[str, Any]:
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    return {**_descriptor(_MANIFEST, manifest), "annotations": names}


def _descriptor(media_type: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return "sha256:" + hashlib.sha256(blob).hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True).encode()
