"""Reading files that a user names: whole, and up to a limit, so that a wrong name costs no memory."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import BinaryIO, Final

MIB: Final = 1 << 20


def read_limited(path: Path, limit: int) -> bytes:
    """Return the content of a file of at most `limit` bytes; OSError if it cannot be read or has more."""
    with path.open("rb") as file:
        return read_stream(file, limit)


def read_stream(stream: BinaryIO, limit: int) -> bytes:
    """Return what a stream has, at most `limit` bytes; OSError if it has more."""
    content = stream.read(limit + 1)
    if len(content) > limit:
        size = f"{limit // MIB} MiB" if limit >= MIB else f"{limit // 1024} KiB"
        raise OSError(errno.EFBIG, f"it has more than {size}, the most that is read")
    return content
