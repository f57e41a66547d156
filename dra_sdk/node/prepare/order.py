"""In which order the calls about one claim came in: what a newer call has overtaken must not be done any more.

The kubelet gives up on a call after 45 s, but the call is still here: it waits for its claim, or for the claims that
stand before it in the same request. A prepare that is late could set up a claim that nobody will ever unprepare; an
unprepare that is late could take the devices from a pod that was given them since.
"""

from __future__ import annotations

import logging
import os
import struct
from pathlib import Path
from typing import Final
from weakref import finalize
from zlib import crc32

from dra_sdk.errors import RetriableError, StateError

log = logging.getLogger(__name__)
_TIME: Final = struct.Struct("q")
_SLOTS: Final = 1 << 16
_SIZE: Final = 2 * _TIME.size * _SLOTS  # bytes, of which those that are not used take neither memory nor disk
_NAME: Final = "order-"


class Order:
    """When the latest prepare and unprepare of each claim came in, in nanoseconds of the monotonic clock.

    `file` shares it with the other processes of a rolling update; without one it is this process's own. Claims whose
    UIDs meet in one of 65 536 slots are taken for one: then a call may be refused that need not have been, and the
    kubelet's next one succeeds.
    """

    def __init__(self, file: Path | None = None) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._handle = os.memfd_create("order") if file is None else os.open(file, flags, 0o600)
        finalize(self, os.close, self._handle)
        os.ftruncate(self._handle, _SIZE)  # what is in it stays

    @classmethod
    def shared(cls, directory: Path, boot_id: str) -> Order:
        """That of all processes of this boot; those of other boots, whose clock was another, go."""
        mine = directory / f"{_NAME}{boot_id}"
        try:
            for other in set(directory.glob(f"{_NAME}*")) - {mine}:
                other.unlink(missing_ok=True)
            return cls(mine)
        except OSError as error:
            raise StateError(f"cannot use {mine}: {error.strerror}") from error

    def prepared(self, uid: str, arrived: int) -> None:
        """A prepare that came in at `arrived` is answered with devices."""
        self._note(_place(uid), arrived)

    def unprepare(self, uid: str, arrived: int) -> None:
        """An unprepare that came in at `arrived` begins: prepares from before it must not any more."""
        self._note(_place(uid) + _TIME.size, arrived)

    def check_prepare(self, uid: str, arrived: int) -> None:
        """RetriableError if the claim was unprepared since this prepare came in."""
        if self._latest(_place(uid) + _TIME.size) > arrived:
            raise RetriableError("the claim was unprepared while this call was waiting")

    def check_unprepare(self, uid: str, arrived: int) -> None:
        """RetriableError if the claim was prepared since this unprepare came in."""
        if self._latest(_place(uid)) > arrived:
            raise RetriableError("the claim was prepared again while this call was waiting")

    def _latest(self, place: int) -> int:
        found: int = _TIME.unpack(os.pread(self._handle, _TIME.size, place))[0]
        return found

    def _note(self, place: int, arrived: int) -> None:
        """Write it down, as far as the disk takes it: a full one must keep nobody from giving devices back."""
        try:
            if self._latest(place) < arrived:
                os.pwrite(self._handle, _TIME.pack(arrived), place)
        except OSError as error:
            log.warning("the order of calls is not kept: %s", error.strerror)


def _place(uid: str) -> int:
    return 2 * _TIME.size * (crc32(uid.encode()) % _SLOTS)
