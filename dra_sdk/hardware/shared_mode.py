"""A mode of hardware that several devices share: the first claim sets it, others must agree, the last restores it.

Examples are the services of a QAT card, MIG mode of a GPU, the eswitch mode of a network card, the shell of an FPGA:
each virtual function, partition or region is a device of its own, and all live with one mode of their parent.

    modes = SharedModes(node, "/var/lib/cards", read=read_mode, write=write_mode)
    modes.hold("0000:6b:00.0", "sym", claim)  # in dra_prepare, before the device is used
    modes.release(claim)                      # in dra_unprepare

What was before, and who holds the mode, is in a record of the hardware (`dra_sdk.hardware.records`), written before
each change. So a process may be killed between any two instructions: the SDK then calls `dra_unprepare`, and `release`
restores what `hold` had begun to change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from dra_sdk.errors import RetriableError
from dra_sdk.hardware.node_access import NodeAccess
from dra_sdk.hardware.records import Records
from dra_sdk.model.claim import Claim, HeldClaim

log = logging.getLogger(__name__)


@dataclass
class ModeRecord:
    """What is kept of one piece of hardware.

    before: its mode before the first claim.
    mode: the mode that claims hold.
    claims: the claims that hold it, as messages name them, by UID.
    is_changing: whether a change has begun and is not known to have ended.
    """

    before: str = ""
    mode: str = ""
    claims: dict[str, str] = field(default_factory=dict)
    is_changing: bool = False


class SharedModes:
    """The modes of a node's hardware. Safe for threads, and for two processes of a driver in a rolling update.

    node: the node, with the time of the call.
    directory: where the records are kept, on the host.
    read: returns the mode of a piece of hardware, named as `hold` gets it, in the words in which it is written.
    write: sets it. It must be repeatable, also after it was interrupted: a change that was begun is written again.
    persistent: True: the hardware keeps its mode through a reboot, so the record does too, and the claim's unprepare
        restores it then. By default what was recorded before a reboot is void.
    """

    def __init__(
        self,
        node: NodeAccess,
        directory: str,
        read: Callable[[str], str],
        write: Callable[[str, str], None],
        *,
        persistent: bool = False,
    ) -> None:
        self._read, self._write = read, write
        boot_id = "" if persistent else node.boot_id
        self._records = Records(node.local(directory), ModeRecord, boot_id, node.clock)

    def hold(self, hardware: str, mode: str, claim: Claim[Any]) -> bool:
        """Let a claim hold a mode, and set it if the hardware has another one. Return whether it was set.

        hardware: its name, which is a directory of its record: a PCI address, a UUID.
        mode: what the claim needs, as `read` returns it.

        Repeatable. RetriableError names the holder and its mode if another claim holds a different one, and if the
        hardware stays locked; RecordError if the record cannot be used; and what `read` and `write` raise.
        """
        with self._records.locked(hardware) as kept:
            present = self._read(hardware)
            record = self._joined(hardware, kept, claim, mode, present)
            changes = record.is_changing or present != mode
            self._records.save(hardware, replace(record, is_changing=changes))
            if changes:
                self._write(hardware, mode)
                self._records.save(hardware, replace(record, is_changing=False))
        return changes

    def release(self, claim: HeldClaim) -> bool:
        """Let a claim hold no mode any more; restore those that it held last. Return whether one was restored.

        Repeatable; nothing to do for a claim that holds none. All its hardware is tried before the first error is
        raised; errors are those of `hold`.
        """
        restored, errors = False, list[Exception]()
        for hardware in self._records.devices():
            try:
                if claim.uid in self._records.read(hardware).claims:
                    restored |= self._leave(hardware, claim)
            except Exception as error:  # noqa: BLE001 (an author's code; the other hardware has its turn too)
                errors.append(error)
        if errors:
            raise errors[0]
        self._records.tidy()
        return restored

    def _joined(self, hardware: str, record: ModeRecord, claim: Claim[Any], mode: str, present: str) -> ModeRecord:
        """Return the record with a claim; claims that no longer hold a device are left out."""
        held = {other.uid for other in claim.held()}
        others = {uid: name for uid, name in record.claims.items() if uid in held and uid != claim.uid}
        if others and record.mode != mode:
            holder = next(iter(others.values()))
            raise RetriableError(
                f"{hardware} is in mode {record.mode!r}, which {holder} holds; {claim} needs {mode!r}, "
                f"and gets it when no other claim holds a mode of {hardware}"
            )
        before = record.before if record.claims else present
        return ModeRecord(before, mode, {**others, claim.uid: str(claim)}, record.is_changing)

    def _leave(self, hardware: str, claim: HeldClaim) -> bool:
        with self._records.locked(hardware) as record:
            others = {uid: name for uid, name in record.claims.items() if uid != claim.uid}
            if others:
                self._records.save(hardware, replace(record, claims=others))
                return False
            changes = record.is_changing or self._read(hardware) != record.before
            if changes:
                self._records.save(hardware, replace(record, is_changing=True))
                self._write(hardware, record.before)
            self._records.save(hardware, ModeRecord())
            return changes
