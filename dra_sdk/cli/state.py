"""`dra-sdk state DRIVER`: what the driver's state files on this node hold, and what to do about a damaged one.

A claim whose state file is damaged keeps its devices until an operator decides. `repair FILE_OR_UID` writes a readable
file of what the damaged one still tells; `forget FILE_OR_UID --yes` gives the claim's devices away, whoever uses them.
Both keep the old file beside the new one. The driver may run: it reads damaged files again at every call. A file that
is not damaged can be forgotten only while no driver runs. Needs no cluster. Exit status: 0 if no file is damaged, or
the file is repaired or forgotten, 1 if one is damaged or cannot be repaired, 2 for bad input.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_sdk.cli.files import is_directory, printable
from dra_sdk.cli.table import print_table, terminal_width
from dra_sdk.errors import DriverLoadError, SettingsError
from dra_sdk.loader import load_driver
from dra_sdk.model.claim import HeldDevice
from dra_sdk.node.files import Files, private_directory
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.prepare.cdi_specs import spec_path
from dra_sdk.node.prepare.checkpoint import FORMAT, Checkpoint, Phase
from dra_sdk.node.prepare.checkpoint_store import claim_lock
from dra_sdk.node.prepare.state_files import SUFFIX, Unreadable, forget, read_checkpoint, repair, state_files
from dra_sdk.node.runtime.instance import InstanceLock, read_boot_id
from dra_sdk.node.runtime.settings import SETTINGS, Settings, add_flags, read_settings

_NEEDED = frozenset({"kubelet_dir", "cdi_dir", "host_root"})
_USAGE = "dra-sdk state DRIVER [repair FILE_OR_UID | forget FILE_OR_UID --yes] [flags]"
_HEADINGS = ("CLAIM", "UID", "DEVICES", "STATE", "FORMAT", "BOOT", "CDI")
_DATA_MODE = 0o750
_STATES = {Phase.STARTED: "preparing", Phase.COMPLETED: "prepared"}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "state", help="show, repair or forget the state files of claims", description=__doc__, usage=_USAGE
    )
    parser.add_argument(
        "driver", metavar="DRIVER", help="the driver's name in slices (gpu.nvidia.com), or what `dra-sdk run` takes"
    )
    parser.add_argument(
        "files", nargs="*", metavar="ACTION", help="repair or forget, and the claim's UID or the file's name or path"
    )
    parser.add_argument(
        "--yes", action="store_true", help="forget the claim; without it you are only told what it means"
    )
    parser.add_argument(
        "-o", "--output", choices=("table", "json"), default="table", help="how the state is shown (default table)"
    )
    add_flags(parser, _NEEDED)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show the state files, or change one; status 1 if one is damaged and stays so."""
    if wrong := _wrong_usage(arguments):
        raise SettingsError(f"{wrong}; it is `{_USAGE}`")
    settings = read_settings(arguments)
    driver = _driver_name(arguments.driver, settings)
    data = settings.plugin_data(driver)
    private_directory(data, _DATA_MODE)
    node = _Node(driver, data, settings, read_boot_id(settings.host_root), _flags(arguments))
    if arguments.files:
        action, chosen = arguments.files
        entry = _chosen(node.entries(), chosen, data)
        return _repair(node, entry) if action == "repair" else _forget(node, entry, sure=arguments.yes)
    entries = list(node.entries())
    if arguments.output == "json":
        found = {"driver": driver, "directory": str(data), "files": [node.as_json(each) for each in entries]}
        print(json.dumps(found, indent=2))
    else:
        _show(node, entries)
    return 1 if any(each.damage for each in entries) else 0


def _wrong_usage(arguments: argparse.Namespace) -> str:
    action, chosen = (arguments.files or [""])[0], arguments.files[1:]
    if action not in {"", "repair", "forget"}:
        return f"{action!r} is neither repair nor forget"
    if action and len(chosen) != 1:
        return f"{action} takes one FILE_OR_UID, not {len(chosen)}"
    return "--yes goes with forget" if arguments.yes and action != "forget" else ""


def _driver_name(word: str, settings: Settings) -> str:
    """The driver whose data directory is meant; a driver that does not load must not bar the way to its state."""
    if word not in {"", ".", ".."} and "/" not in word and is_directory(settings.plugin_data(word)):
        return word
    try:
        found = load_driver(word).info.name
    except DriverLoadError as error:
        raise SettingsError(f"there is no directory {settings.plugin_data(word)}, and {error}") from error
    if not is_directory(settings.plugin_data(found)):
        raise SettingsError(f"there is no directory {settings.plugin_data(found)}: driver {found} never ran here")
    return found


def _flags(arguments: argparse.Namespace) -> list[str]:
    """The settings that were given as flags, for the commands that are proposed."""
    words = [] if arguments.config is None else ["--config", str(arguments.config)]
    for each in SETTINGS:
        if each.name in _NEEDED and (given := getattr(arguments, each.name)) is not None:
            words += [each.flag, str(given)]
    return words


@dataclass(frozen=True, slots=True)
class _Entry:
    """A state file: where it lies, its claim as far as it tells, and what is wrong with it."""

    path: Path
    claim: Checkpoint | None
    damage: Unreadable | None

    @property
    def id(self) -> str:
        """The claim's UID as file names have it."""
        return self.path.name.removesuffix(SUFFIX)

    @property
    def title(self) -> str:
        """The claim in words."""
        return str(self.claim) if self.claim else f"the claim of {self.path.name}"

    @property
    def devices(self) -> str:
        """The devices in words."""
        names = dict.fromkeys(f"{each.pool}/{each.name}" for each in self.claim.devices) if self.claim else {}
        return ", ".join(names)

    @property
    def format(self) -> int | None:
        """The format version of its header, if that can be read."""
        return self.damage.format if self.damage else FORMAT


@dataclass(frozen=True, slots=True)
class _Node:
    """What one driver has on this node."""

    driver: str
    data: Path
    settings: Settings
    boot_id: str
    flags: Sequence[str]

    @property
    def instance(self) -> Path:
        """What the driver's process locks while it runs."""
        return self.data / "instance.lock"

    def entries(self) -> Iterator[_Entry]:
        """The state files, one after the other."""
        for path in state_files(self.data):
            try:
                found = read_checkpoint(path)
            except FileNotFoundError:  # unprepared in this moment
                continue
            yield _Entry(path, found.claim, found) if isinstance(found, Unreadable) else _Entry(path, found, None)

    def spec(self, entry: _Entry) -> Path:
        """Where the claim's CDI spec lies if there is one."""
        return spec_path(self.settings.cdi_dir, self.driver, entry.id)

    def command(self, action: str, entry: _Entry) -> str:
        """The command that does it to this file."""
        known = entry.id if entry.path.is_relative_to(self.data / "claims") else str(entry.path)
        words = ["dra-sdk", "state", self.driver, action, known, *self.flags]
        return shlex.join([*words, "--yes"] if action == "forget" else words)

    def cells(self, entry: _Entry) -> list[str]:
        """The row of the table."""
        claim = entry.claim
        spec = "present" if self.spec(entry).is_file() else "missing" if claim and claim.cdi_spec else "none"
        return [
            f"{claim.namespace}/{claim.name}" if claim else "-",
            claim.uid if claim else entry.id,
            entry.devices or "-",
            "damaged" if entry.damage or not claim else _STATES[claim.phase],
            "-" if entry.format is None else str(entry.format),
            "-" if not claim else "this" if claim.boot_id == self.boot_id else "earlier",
            spec,
        ]

    def as_json(self, entry: _Entry) -> dict[str, Any]:
        """The same, and what there is no room for in a table."""
        claim, spec = entry.claim, self.spec(entry)
        return {
            "file": str(entry.path),
            "damage": entry.damage.reason if entry.damage else "",
            "obstacleToRepair": entry.damage.obstacle if entry.damage else "",
            "format": entry.format,
            "namespace": claim.namespace if claim else None,
            "name": claim.name if claim else None,
            "uid": claim.uid if claim else None,
            "phase": claim.phase.value if claim and not entry.damage else None,
            "bootID": claim.boot_id if claim else None,
            "thisBoot": claim.boot_id == self.boot_id if claim else None,
            "devices": [_device(each) for each in claim.devices] if claim else None,
            "cdiSpec": {"path": str(spec), "present": spec.is_file()},
        }


def _device(held: HeldDevice) -> dict[str, Any]:
    shared = {"shareID": held.share_id, "adminAccess": held.admin_access}
    return {"request": held.request, "pool": held.pool, "device": held.name} | shared


def _show(node: _Node, entries: Sequence[_Entry]) -> None:
    if not entries:
        print(f"driver {node.driver} has no claim on this node: no state file in {node.data}", file=sys.stderr)
        return
    rows = [[printable(cell) for cell in node.cells(each)] for each in entries]
    print_table(_HEADINGS, rows, width=terminal_width())
    for each in entries:
        if each.damage:
            _tell(["", each.damage.reason, *_choices(node, each, each.damage)])


def _choices(node: _Node, entry: _Entry, damage: Unreadable) -> Iterator[str]:
    """What a damaged file means, and what can be done."""
    if entry.claim:
        yield f"  It still tells of {entry.claim}: no other claim is given {entry.devices or 'its devices'}."
    else:
        yield f"  It tells nothing of its claim, so no claim is given any device of driver {node.driver} any more."
    if entry.format is not None and entry.format > FORMAT:
        yield "  A newer release of the driver reads it as it is; to repair it loses what only that release knows."
    if damage.obstacle:
        yield f"  It cannot be repaired: {damage.obstacle}. A backup of it can be put back."
    else:
        yield f"  To write what it tells into a readable file:  {node.command('repair', entry)}"
    yield f"  To give its devices away, when no pod uses them:  {node.command('forget', entry)}"


def _chosen(entries: Iterator[_Entry], word: str, data: Path) -> _Entry:
    """The state file that is meant; SettingsError with what there is for none, or for more than one."""
    known = list(entries)
    found = [
        each
        for each in known
        if word in {each.id, each.path.name, str(each.path), each.claim.uid if each.claim and not each.damage else ""}
    ]
    if len(found) == 1:
        return found[0]
    if found:
        raise SettingsError(f"{word} may be {' or '.join(str(each.path) for each in found)}; give the path")
    names = ", ".join(each.path.name for each in known) or "none"
    raise SettingsError(f"there is no state file {word} under {data}; there are: {names}")


def _repair(node: _Node, entry: _Entry) -> int:
    if entry.damage is None:
        print(printable(f"state file {entry.path} is not damaged, so there is nothing to repair"))
        return 0
    if entry.damage.obstacle:
        _tell([entry.damage.reason, f"It cannot be repaired: {entry.damage.obstacle}. Nothing was changed."])
        return 1
    with _locked(node, entry):
        kept = repair(entry.path, Files())
    _tell(
        [
            f"{entry.path} is repaired: it says that {entry.title} holds {entry.devices}, and was being prepared.",
            "- A driver that runs reads it at the kubelet's next call.",
            "- The next call for the claim has dra_unprepare undo these devices. The data and the journal that",
            "  dra_prepare had recorded are lost, so it does without. A prepare then sets the claim up again.",
            f"The damaged file is kept as {kept}.",
        ]
    )
    return 0


def _forget(node: _Node, entry: _Entry, *, sure: bool) -> int:
    spec = node.spec(entry)
    if not sure:
        _tell([f"To forget {entry.path} means:", *_meaning(entry, spec, spec.is_file()), "Nothing was changed."])
        raise SettingsError(f"forget needs --yes: {node.command('forget', entry)}")
    with _locked(node, entry) as alone:
        if not alone and isinstance(read_checkpoint(entry.path), Checkpoint):
            raise SettingsError(
                f"state file {entry.path} is not damaged, and a driver works with it: its process holds {node.instance}"
                f"; end the claim's pods, so that the kubelet unprepares it, or end the driver first"
            )
        had_spec = spec.is_file()
        kept = forget(entry.path, spec, Files())
    _tell([f"{entry.path} is forgotten:", *_meaning(entry, spec, had_spec), f"The file is kept as {kept}."])
    return 0


def _meaning(entry: _Entry, spec: Path, had_spec: bool) -> Iterator[str]:
    held = f"Its devices {entry.devices}" if entry.devices else "All devices that it held"
    yield f"- {held} are free for the next claim, though {entry.title} may still use them."
    yield "- A container that still runs keeps them: end the pods of the claim, or two claims use one device."
    yield "- dra_unprepare is not called: what the driver set up for the claim stays as it is."
    yield (
        f"- Its CDI spec {spec} is removed: no container is started with its devices until it is prepared again."
        if had_spec
        else f"- There is no CDI spec {spec} to remove."
    )
    yield "- The next prepare of the claim sets it up as new, and its next unprepare has nothing to undo."


@contextmanager
def _locked(node: _Node, entry: _Entry) -> Iterator[bool]:
    """Keep other operators, and drivers of a rolling update, away from the claim; any driver if none runs.

    Yields whether none runs, and then none starts. SettingsError if a process works on the claim.
    """
    with ExitStack() as stack:
        instance, locks = InstanceLock(node.instance), NamedLocks(node.data / "locks")
        stack.callback(instance.release)
        stack.callback(locks.close)
        alone = instance.try_acquire()
        if not stack.enter_context(locks.try_hold(claim_lock(entry.id))):
            raise SettingsError(
                f"another process works on {entry.title} in this moment: it holds {claim_lock(entry.id)} in "
                f"{node.data / 'locks'}; try again"
            )
        yield alone


def _tell(lines: Sequence[str]) -> None:
    for line in lines:
        print(printable(line))
