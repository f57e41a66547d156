"""The file of a unix socket: its limit, how it is put in place, and how to remove it but not that of another process.

Source: unix(7): sun_path holds 108 bytes with the final NUL, so a path has at most 107.
"""

from __future__ import annotations

import contextlib
from base64 import urlsafe_b64encode
from hashlib import sha256
from pathlib import Path

from dra_sdk.errors import SettingsError

LIMIT = 107
"""Bytes that the path of a unix socket may have."""


def hidden(path: Path) -> Path:
    """Return the path at which a socket is bound before its rename: not longer than its own; the kubelet ignores it."""
    return path.with_name(f".{short_hash(path.name, 4)}")


def refuse_foreign(path: Path) -> None:
    """Raise SettingsError if `path` exists and is not a socket, or if its directory is missing."""
    if not path.parent.is_dir():
        raise SettingsError(f"cannot listen on {path}: {path.parent} is not a directory")
    if path.is_symlink() or (path.exists() and not path.is_socket()):
        raise SettingsError(f"{path} exists and is not a socket; remove it")


def remove_own(path: Path, inode: int) -> None:
    """Remove our socket, unless another process has already put its own socket at the same path."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_ino == inode:
            path.unlink()


def short_hash(text: str, size: int) -> str:
    """Return a text of characters that names may have, from `size` bytes of a hash."""
    return urlsafe_b64encode(sha256(text.encode()).digest()[:size]).rstrip(b"=").decode()
