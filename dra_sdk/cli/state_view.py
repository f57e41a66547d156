"""The state files of a driver on a node, as `dra-sdk state` shows them."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dra_sdk.model.claim import HeldDevice
from dra_sdk.node.prepare.cdi_specs import spec_path
from dra_sdk.node.prepare.checkpoint import FORMAT, Checkpoint, ClaimPhase
from dra_sdk.node.prepare.state_files import DURABLE, SUFFIX, Unreadable, read_checkpoint, skips, state_files
from dra_sdk.node.runtime.instance import CLAIM_LOCKS, INSTANCE_LOCK
from dra_sdk.node.runtime.settings import SETTINGS

NEEDED: Final = frozenset({"node_name", "kubelet_dir", "cdi_dir", "host_root"})
"""The settings of `dra-sdk state`."""
HEADINGS: Final = ("CLAIM", "UID", "DEVICES", "STATE", "FORMAT", "BOOT", "CDI")
_STATES: Final = {ClaimPhase.STARTED: "preparing", ClaimPhase.COMPLETED: "prepared"}


@dataclass(frozen=True, slots=True)
class ClaimFile:
    """A state file.

    path: the file.
    state: its claim; of a damaged file as far as it can be read, None if it cannot.
    damage: its problem; None for a good file.
    """

    path: Path
    state: Checkpoint | None
    damage: Unreadable | None

    @property
    def id(self) -> str:
        """The claim's UID as file names have it."""
        return self.path.name.removesuffix(SUFFIX)

    @property
    def title(self) -> str:
        """The claim in words."""
        return str(self.state) if self.state else f"the claim of {self.path.name}"

    @property
    def devices(self) -> str:
        """The devices in words."""
        devices = self.state.claim.devices if self.state else ()
        return ", ".join(dict.fromkeys(f"{device.pool}/{device.name}" for device in devices))

    @property
    def refused(self) -> Sequence[tuple[str, str]]:
        """The steps that hold the claim, each with its reason."""
        return self.state.refused if self.state and not self.damage else ()

    @property
    def format(self) -> int | None:
        """The format version of its header, if that can be read."""
        return self.damage.format if self.damage else FORMAT


@dataclass(frozen=True, slots=True)
class DriverState:
    """What one driver has on this node.

    driver: the driver's name.
    data: its plugin data directory.
    cdi_dir: the directory of its CDI specs.
    boot_id: the kernel's boot id.
    flags: the settings given as flags, for the proposed commands.
    """

    driver: str
    data: Path
    cdi_dir: Path
    boot_id: str
    flags: Sequence[str]

    @property
    def instance(self) -> Path:
        """The file that a running driver locks."""
        return self.data / INSTANCE_LOCK

    @property
    def locks(self) -> Path:
        """The file whose bytes are the locks of claims."""
        return self.data / CLAIM_LOCKS

    def entries(self) -> Iterator[ClaimFile]:
        """Yield the state files."""
        for path in state_files(self.data):
            try:
                checkpoint = read_checkpoint(path)
            except FileNotFoundError:  # just unprepared
                continue
            if isinstance(checkpoint, Unreadable):
                yield ClaimFile(path, checkpoint.state, checkpoint)
            else:
                yield ClaimFile(path, checkpoint, None)

    @property
    def show(self) -> str:
        """The command line that shows the state files."""
        return shlex.join(["dra-sdk", "state", self.driver, *self.flags])

    def spec(self, entry: ClaimFile) -> Path:
        """Return the path of the claim's CDI spec, which need not exist."""
        return spec_path(self.cdi_dir, self.driver, entry.id)

    def command(self, action: str, entry: ClaimFile, *more: str) -> str:
        """Return the command line of an action for this file."""
        known = entry.id if entry.path.is_relative_to(self.data / DURABLE) else str(entry.path)
        words = ["dra-sdk", "state", self.driver, action, known, *more, *self.flags]
        return shlex.join(words if action == "repair" else [*words, "--yes"])

    def cells(self, entry: ClaimFile) -> list[str]:
        """Return the row of the table."""
        state = entry.state
        claim = state and state.claim
        spec = "present" if self.spec(entry).is_file() else "missing" if state and state.cdi_spec else "none"
        return [
            f"{claim.namespace}/{claim.name}" if claim else "-",
            claim.uid if claim else entry.id,
            entry.devices or "-",
            "damaged" if entry.damage or not state else "held by undo" if state.refused else _STATES[state.phase],
            "-" if entry.format is None else str(entry.format),
            "-" if not state else "this" if state.boot_id == self.boot_id else "earlier",
            spec,
        ]

    def as_json(self, entry: ClaimFile) -> dict[str, Any]:
        """Return the same with more fields, for programs."""
        state, spec = entry.state, self.spec(entry)
        claim = state and state.claim
        return {
            "file": str(entry.path),
            "damage": entry.damage.reason if entry.damage else "",
            "whyNotRepairable": entry.damage.not_repairable if entry.damage else "",
            "format": entry.format,
            "namespace": claim.namespace if claim else None,
            "name": claim.name if claim else None,
            "uid": claim.uid if claim else None,
            "phase": state.phase.value if state and not entry.damage else None,
            "bootID": state.boot_id if state else None,
            "refusedSteps": [{"step": step, "reason": reason} for step, reason in entry.refused],
            "skippedSteps": sorted(skips(entry.path)),
            "thisBoot": state.boot_id == self.boot_id if state else None,
            "devices": [_device(device) for device in claim.devices] if claim else None,
            "cdiSpec": {"path": str(spec), "present": spec.is_file()},
        }


def _device(held: HeldDevice) -> dict[str, Any]:
    shared = {"shareID": held.share_id, "adminAccess": held.admin_access}
    return {"request": held.request, "pool": held.pool, "device": held.name} | shared


def given_flags(arguments: argparse.Namespace) -> list[str]:
    """Return the settings of `dra-sdk state` that were given as flags, for the proposed commands."""
    words = [] if arguments.config is None else ["--config", str(arguments.config)]
    for setting in SETTINGS:
        if setting.name in NEEDED and (given := getattr(arguments, setting.name)) is not None:
            words += [setting.flag, str(given)]
    return words


def waiting(node: DriverState, entry: ClaimFile) -> Iterator[str]:
    """Yield the steps that hold a claim, why, and the commands for them."""
    yield f"The undo of {entry.title} is refused, so {entry.devices} stay held. The kubelet tries again."
    skipped = skips(entry.path)
    for step, reason in entry.refused:
        yield f"  {step} waits: {reason}"
        if step in skipped:
            yield "  It is skipped when the kubelet calls next."
        else:
            yield f"  To end the claim without this step:  {node.command('skip', entry, step)}"


def choices(node: DriverState, entry: ClaimFile, damage: Unreadable) -> Iterator[str]:
    """Yield what a damaged file means, and the commands for it."""
    if entry.state:
        yield f"  It belongs to {entry.state}: no other claim gets {entry.devices or 'its devices'}."
    else:
        yield f"  Its claim is unknown, so no claim gets any device of driver {node.driver}."
    if entry.format is not None and entry.format > FORMAT:
        yield "  A newer release of the driver can read it; a repair would lose what only that release knows."
    if damage.not_repairable:
        yield f"  It cannot be repaired: {damage.not_repairable}. A backup of it can be put back."
    else:
        yield f"  To write a readable file with what it contains:  {node.command('repair', entry)}"
    yield f"  To free its devices, when no pod uses them any more:  {node.command('forget', entry)}"
