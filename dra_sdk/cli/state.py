"""`dra-sdk state DRIVER`: the driver's state files on this node, and what an operator can do about a claim that stays.

A claim whose state file is damaged keeps its devices until an operator decides. `repair FILE_OR_UID` writes a readable
file with everything that the damaged one still contains. `forget FILE_OR_UID --yes` frees the claim's devices, even if
a container still uses them. Both keep the old file. The driver may run: it reads damaged files again at every call. A
file that is not damaged can be forgotten only while no driver runs.

A claim whose undo is refused at a step that makes its device unsafe is held, too; its row is followed by each such step
and its reason. `skip FILE_OR_UID STEP --yes` does without that step: when the kubelet calls next, it is tried once
more, and the claim ends although it is refused. The driver may run. The audit log has the step, and the file is kept.

Needs no cluster. Exit status: 0 if no file is damaged, or the file is repaired or forgotten or the step is skipped, 1
if one is damaged or cannot be repaired, 2 for bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from dra_sdk.cli.arguments import Commands, add_output, driver_data, is_directory
from dra_sdk.cli.hook_calls import load_driver
from dra_sdk.cli.output import print_json, print_lines, print_table, terminal_width
from dra_sdk.cli.state_view import HEADINGS, NEEDED, ClaimFile, DriverState, choices, given_flags, waiting
from dra_sdk.errors import DriverLoadError, SettingsError
from dra_sdk.node.files import Files, claim_lock, private_directory, safe_id
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.prepare.checkpoint import Checkpoint
from dra_sdk.node.prepare.state_files import forget, read_checkpoint, repair, skip
from dra_sdk.node.runtime.instance import DATA_MODE, InstanceLock, read_boot_id
from dra_sdk.node.runtime.settings import Settings, add_flags, read_settings

_USAGE = "dra-sdk state DRIVER [repair FILE_OR_UID | forget FILE_OR_UID --yes | skip FILE_OR_UID STEP --yes] [flags]"
_ARGUMENTS = {"repair": "one FILE_OR_UID", "forget": "one FILE_OR_UID", "skip": "FILE_OR_UID and STEP"}


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("state", help="show, repair or forget state files of claims", description=__doc__)
    parser.usage = _USAGE
    parser.add_argument(
        "driver", metavar="DRIVER", help="the driver's name in slices (gpu.nvidia.com), or what `dra-sdk run` takes"
    )
    parser.add_argument(
        "files",
        nargs="*",
        metavar="ACTION",
        help="repair, forget or skip, and the claim's UID or the file's name or path; for skip, the step as well",
    )
    parser.add_argument("--yes", action="store_true", help="forget or skip; without it, only print what that means")
    add_output(parser, ("table", "json"), "how the state is shown (default table)")
    add_flags(parser, NEEDED)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Show the state files, or change one; status 1 if a damaged one remains."""
    if wrong := _wrong_usage(arguments):
        raise SettingsError(f"{wrong}; it is `{_USAGE}`")
    settings = read_settings(arguments)
    driver = _driver_name(arguments.driver, settings)
    data = settings.plugin_data(driver)
    private_directory(data, DATA_MODE)
    node = DriverState(driver, data, settings.cdi_dir, read_boot_id(settings.host_root), given_flags(arguments))
    if arguments.files:
        action, chosen, *step = arguments.files
        entry = _chosen(node.entries(), chosen, data)
        if action == "repair":
            return _repair(node, entry)
        return _skip(node, entry, *step, sure=arguments.yes) if step else _forget(node, entry, sure=arguments.yes)
    entries = list(node.entries())
    if arguments.output == "json":
        print_json({"driver": driver, "directory": str(data), "files": [node.as_json(entry) for entry in entries]})
    else:
        _show(node, entries)
    return 1 if any(entry.damage for entry in entries) else 0


def _wrong_usage(arguments: argparse.Namespace) -> str:
    action, chosen = (arguments.files or [""])[0], arguments.files[1:]
    if action and action not in _ARGUMENTS:
        return f"{action!r} is none of {', '.join(_ARGUMENTS)}"
    if action and len(chosen) != (2 if action == "skip" else 1):
        return f"{action} takes {_ARGUMENTS[action]}, not {len(chosen)} arguments"
    return "--yes goes with forget and skip" if arguments.yes and action not in {"forget", "skip"} else ""


def _driver_name(word: str, settings: Settings) -> str:
    """Return the driver whose data directory is meant. It need not load: a broken driver's state can be repaired."""
    if word not in {"", ".", ".."} and "/" not in word and is_directory(settings.plugin_data(word)):
        return word
    try:
        name = load_driver(word, settings.driver, settings.kubelet_dir).info.name
    except (DriverLoadError, SettingsError) as error:
        raise SettingsError(f"there is no directory {settings.plugin_data(word)}, and {error}") from error
    driver_data(settings.plugin_data(name), name)
    return name


def _show(node: DriverState, entries: Sequence[ClaimFile]) -> None:
    if not entries:
        print_lines([f"driver {node.driver} has no claim on this node: no state file in {node.data}"], sys.stderr)
        return
    print_table(HEADINGS, [node.cells(entry) for entry in entries], width=terminal_width())
    for entry in entries:
        if entry.damage:
            print_lines(["", entry.damage.reason, *choices(node, entry, entry.damage)])
        elif entry.refused:
            print_lines(["", *waiting(node, entry)])


def _chosen(entries: Iterator[ClaimFile], word: str, data: Path) -> ClaimFile:
    """Return the chosen state file. SettingsError with the existing ones if it is none or more than one of them."""
    known = list(entries)
    matches = [
        entry for entry in known if word in {entry.id, entry.path.name, str(entry.path)} or safe_id(word) == entry.id
    ]
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise SettingsError(f"{word} may be {' or '.join(str(entry.path) for entry in matches)}; give the path")
    names = ", ".join(entry.path.name for entry in known) or "none"
    raise SettingsError(f"there is no state file {word} under {data}; there are: {names}")


def _repair(node: DriverState, entry: ClaimFile) -> int:
    if entry.damage is None:
        print_lines([f"state file {entry.path} is not damaged, so there is nothing to repair"])
        return 0
    if entry.damage.not_repairable:
        reason = entry.damage.not_repairable
        print_lines([entry.damage.reason, f"It cannot be repaired: {reason}. Nothing was changed."])
        return 1
    with _locked(node, entry):
        kept = repair(entry.path, Files())
    print_lines(
        [
            f"{entry.path} is repaired: it says that {entry.title} holds {entry.devices}, and was being prepared.",
            "- A driver that runs reads it at the kubelet's next call.",
            "- The next call for the claim has dra_unprepare undo these devices. The data and the journal that",
            "  dra_prepare had recorded are lost, so it does without. A prepare then sets the claim up again.",
            f"The damaged file is kept as {kept}.",
        ]
    )
    return 0


def _forget(node: DriverState, entry: ClaimFile, *, sure: bool) -> int:
    spec = node.spec(entry)
    if not sure:
        print_lines([f"To forget {entry.path} means:", *_meaning(entry, spec, spec.is_file()), "Nothing was changed."])
        raise SettingsError(f"forget needs --yes: {node.command('forget', entry)}")
    with _locked(node, entry) as alone:
        if not alone and isinstance(read_checkpoint(entry.path), Checkpoint):
            raise SettingsError(
                f"state file {entry.path} is not damaged, and a driver works with it: its process holds {node.instance}"
                f"; end the claim's pods, so that the kubelet unprepares it, or end the driver first"
            )
        had_spec = spec.is_file()
        kept = forget(entry.path, spec, Files())
    print_lines([f"{entry.path} is forgotten:", *_meaning(entry, spec, had_spec), f"The file is kept as {kept}."])
    return 0


def _skip(node: DriverState, entry: ClaimFile, step: str, *, sure: bool) -> int:
    reasons = dict(entry.refused)
    if step not in reasons:
        names = ", ".join(map(repr, reasons)) or "none"
        raise SettingsError(f"{step!r} is no step that holds {entry.title}; there are: {names}")
    meaning = [
        f"- It was refused: {reasons[step]}.",
        "- It is tried once more when the kubelet calls next. If it is refused again, the claim ends without it.",
        f"- Then {entry.devices} are free for the next claim, which may find a device that is not as it should be.",
        "- Steps that hold the claim beside it still do. The state file is kept, with what the driver had noted.",
    ]
    if not sure:
        print_lines([f"To skip {step!r} of {entry.title} means:", *meaning, "Nothing was changed."])
        raise SettingsError(f"skip needs --yes: {node.command('skip', entry, step)}")
    with _locked(node, entry):
        skip(entry.path, step, Files())
    print_lines([f"{step!r} of {entry.title} is skipped:", *meaning])
    return 0


def _meaning(entry: ClaimFile, spec: Path, had_spec: bool) -> Iterator[str]:
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
def _locked(node: DriverState, entry: ClaimFile) -> Iterator[bool]:
    """Hold the claim's lock, and the driver's instance lock if no driver runs.

    Yields whether no driver runs; then none can start. SettingsError if a process uses the claim.
    """
    with ExitStack() as stack:
        instance, locks = InstanceLock(node.instance), NamedLocks(node.locks)
        stack.callback(instance.release)
        stack.callback(locks.close)
        alone = instance.try_acquire()
        if not stack.enter_context(locks.try_hold(claim_lock(entry.id))):
            raise SettingsError(
                f"another process works on {entry.title} in this moment: it holds {claim_lock(entry.id)} in "
                f"{node.locks}; try again"
            )
        yield alone
