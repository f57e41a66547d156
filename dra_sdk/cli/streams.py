"""stdout and stderr that cannot be written: a full disk, a pipe whose reader has ended, a stream that was closed.

What a command prints on stdout is its answer, so that it cannot be written is an OutputError, which ends the command.
What it prints on stderr is lost then, and changes nothing else.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Final, TextIO

from dra_sdk.errors import DraError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STDOUT: Final = 1
_STDERR: Final = 2


class OutputError(DraError):
    """What a command prints cannot be written."""


class _AnswerStream(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputError(f"cannot write to stdout: {error.strerror}") from error


class _MessageStream(io.FileIO):
    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:  # there is no other place to say so
            return memoryview(data).nbytes


def guard() -> None:
    """Replace stdout and stderr of the process, unless that was done, for example by a test that records them."""
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(_AnswerStream, _STDOUT, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(_MessageStream, _STDERR, sys.stderr)


def give_up() -> None:
    """Discard what stdout has not taken, so that the interpreter does not try again when it ends."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, sys.stdout.fileno())
    os.close(descriptor)


def _stream(kind: type[io.FileIO], descriptor: int, former: TextIO | None) -> TextIO:
    if not isinstance(former, io.TextIOWrapper):  # None: it was closed when the process began
        raw = kind(os.open(os.devnull, os.O_RDONLY), "w")  # refuses all writes, and no other file gets the descriptor
        return io.TextIOWrapper(io.BufferedWriter(raw), "utf-8", "backslashreplace")
    raw = kind(descriptor, "w", closefd=False)
    return io.TextIOWrapper(
        raw if former.write_through else io.BufferedWriter(raw),  # the first as with -u
        former.encoding,
        former.errors,
        line_buffering=former.line_buffering,
        write_through=former.write_through,
    )
