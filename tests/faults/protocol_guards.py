"""The guards of the node's prepare package, and what takes each of them out: a change of its source text."""

from __future__ import annotations

import inspect
import sys
import textwrap
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import pytest

PACKAGE: Final = "dra_sdk.node"


@dataclass(frozen=True)
class Guard:
    """One guard.

    name: what it guards against.
    where: the function, as `module:Class.function`.
    text: the text in its source that is the guard; it must be there once.
    instead: what stands there once the guard is taken out.
    """

    name: str
    where: str
    text: str
    instead: str

    def take_out(self, patch: pytest.MonkeyPatch) -> int:
        """Replace the function by the same one without its guard; return in how many places it is replaced."""
        module_name, _, path = self.where.partition(":")
        module = import_module(f"{PACKAGE}.{module_name}")
        *classes, name = path.split(".")
        owner: Any = module
        for each in classes:
            owner = getattr(owner, each)
        whole = inspect.getattr_static(owner, name)
        source = textwrap.dedent(inspect.getsource(whole))
        assert source.count(self.text) == 1, f"{self.where} no longer has {self.text!r} once; mend the list of guards"
        code = "from __future__ import annotations\n" + source.replace(self.text, self.instead)
        scope: dict[str, Any] = {}
        exec(compile(code, f"{self.where} without a guard", "exec"), vars(module), scope)
        importers = [module for module in sys.modules.values() if module.__name__.startswith(PACKAGE)]
        places = [owner, *(importer for importer in importers if getattr(importer, name, None) is whole)]
        for place in places:
            patch.setattr(place, name, scope[name])
        return len(places)


_ENGINE: Final = "prepare.engine:"
_STORE: Final = "prepare.checkpoint_store:CheckpointStore."
_CDI: Final = "prepare.cdi_specs:CdiSpecs."
_RUN: Final = "prepare.engine:HookRun."

GUARDS: Final = (
    # what the API server says
    Guard("a claim replaced under its name", "prepare.allocation:read_status", "uid != ref.uid", "False"),
    Guard(
        "a claim that is not allocated",
        "prepare.allocation:read",
        'raise ClaimError("the claim is not allocated")',
        "allocation = AllocationResult.model_validate("
        '{"devices": {"results": [{"request": "r", "driver": info.name, "pool": node, "device": "lamp-0"}]}})',
    ),
    Guard(
        "a claim that is allocated for another node",
        "prepare.allocation:read",
        "_check_node(allocation, node)",
        "pass",
    ),
    Guard("a device that was unplugged", "prepare.allocation:_device", "if device is None:", "if False:"),
    Guard(
        "a device that another claim holds", "prepare.allocation:refuse_taken", "refuse_held(devices, holders)", "pass"
    ),
    Guard(
        "a device in the index of those that are held",
        _STORE + "_keep",
        "for resource in _resources(state):\n            self._holders.setdefault(resource, set()).add(key)",
        "pass",
    ),
    # one at a time
    Guard("two calls for one claim at once", _ENGINE + "Preparer.prepare", "[claim_lock(ref.uid)]", "[]"),
    Guard("a prepare beside an unprepare", _ENGINE + "Preparer.unprepare", "[claim_lock(ref.uid)]", "[]"),
    Guard(
        "two claims on one device at once",
        _ENGINE + "Preparer._prepare_new",
        "self._locks.hold(names)",
        "self._locks.hold(())",
    ),
    Guard(
        "a device that is undone and set up at once",
        _ENGINE + "Preparer.unprepare",
        "state.device_locks",
        "()",
    ),
    Guard("two processes at once", "locks:NamedLocks.acquire", "if self._file is not None:", "if False:"),
    Guard(
        "a start that sweeps the CDI spec of another process at work", _CDI + "_sweep", "if not is_ours:", "if False:"
    ),
    Guard("a start that sweeps the state file of another process at work", _STORE + "_sweep", "if held:", "if True:"),
    Guard(
        "a start that restores what another process undoes",
        _ENGINE + "Preparer._restore",
        "if is_ours and self._store.get(state.claim.uid) is not None:",
        "if True:",
    ),
    Guard(
        "an index older than the other process's files",
        _STORE + "_look",
        "if self._shared or self._unreadable:",
        "if self._unreadable:",
    ),
    # calls that nobody waits for
    Guard("a late prepare that waited for its claim", _ENGINE + "Preparer.prepare", "deadline.check()", "pass"),
    Guard(
        "a late prepare that waited for the API server or a device",
        _ENGINE + "Preparer._prepare_new",
        "deadline.check()",
        "pass",
    ),
    Guard(
        "a late unprepare of a claim that holds nothing",
        _ENGINE + "Preparer.unprepare",
        "deadline.check()\n        state",
        "state",
    ),
    Guard(
        "a late unprepare",
        _ENGINE + "Preparer.unprepare",
        "deadline.check()\n            self._release",
        "self._release",
    ),
    Guard(
        "an undoing that its caller's deadline ends",
        _ENGINE + "Preparer._give_up",
        "self._release(run.checkpoint, NO_DEADLINE)",
        "from dra_sdk.model.claim import Deadline; self._release(run.checkpoint, Deadline(is_active=lambda: False))",
    ),
    # one answer while it is held
    Guard(
        "a second run of the hook for a claim that is held",
        _ENGINE + "Preparer.prepare",
        "if state and self._is_current(state):",
        "if False:",
    ),
    Guard(
        "an answer from a checkpoint that is not complete",
        _ENGINE + "Preparer._is_current",
        "state.claim.complete and ",
        "",
    ),
    Guard(
        "an answer from a checkpoint that is being undone on a full disk",
        "prepare.state_files:read_checkpoint",
        "stat.S_IMODE(mode) == UNDOING",
        "False",
    ),
    Guard(
        "an answer from before a reboot",
        _ENGINE + "Preparer._is_current",
        " and state.boot_id == self._dependencies.boot_id",
        "",
    ),
    Guard("a lost CDI spec at a repeated prepare", _ENGINE + "Preparer.prepare", "self._ensure(state)", "pass"),
    Guard("a lost CDI spec at the start", _ENGINE + "Preparer.read_state", "self._restore(state)", "pass"),
    Guard(
        "a CDI directory that is gone",
        _CDI + "write",
        "self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)",
        "raise",
    ),
    # nothing is lost
    Guard(
        "a hook that runs before its claim is written", _ENGINE + "Preparer._start", "self._write_state(state)", "pass"
    ),
    Guard(
        "a begin that a power failure takes back",
        _ENGINE + "Preparer._start",
        "self._write_state(state)",
        "self._write_state(state, survive_power_loss=False)",
    ),
    Guard("a journal that is not written", _RUN + "reserve", "self.save()", "pass"),
    Guard("data of a device that is not written", _RUN + "call_hook", "if missing:  #", "if False:  #"),
    Guard(
        "half-undone claims that look complete", _ENGINE + "Preparer._release", "self._store.begin_undo(state)", "pass"
    ),
    Guard("a file that is half written", "files:Files.write", "temporary = _temporary(target)", "temporary = target"),
    Guard("a file whose content a power failure destroys", "files:Files._fill", "if whole:", "if False:"),
    Guard("memory that differs from a disk that failed", _STORE + "_read_again", "with self._lock:", "if False:"),
    # damaged files
    Guard("a damaged file of the claim itself", _STORE + "get", "if key in self._unreadable:", "if False:"),
    Guard(
        "a damaged file that holds devices",
        _ENGINE + "Preparer._begin",
        "refuse_taken(wanted.devices, unreadable, holders)",
        "refuse_taken(wanted.devices, (), "
        "[state for state in self._store.all() if state.claim.uid != started.claim.uid])",
    ),
    Guard(
        "a damaged file that tells nothing",
        "prepare.allocation:refuse_unreadable",
        "for file in unreadable:",
        "for file in [damaged for damaged in unreadable if damaged.state is not None]:",
    ),
    Guard(
        "a damaged file taken for a whole one", "prepare.checkpoint:decode", "if _sum(body) != checksum:", "if False:"
    ),
    Guard("a CDI spec of a damaged claim", _STORE + "has", "key in self._stamps", "key in self._claims"),
    # nothing is left
    Guard("what a hook that failed has done", _ENGINE + "Preparer._run_hook", "self._give_up(run, error)", "pass"),
    Guard("what an earlier attempt left", _ENGINE + "Preparer._begin", "self._release(previous, deadline)", "pass"),
    Guard("a begin that failed", _ENGINE + "Preparer._start", "self._store.delete(state.claim.uid)", "pass"),
    Guard(
        "the CDI spec of a claim that is undone",
        _ENGINE + "Preparer._release",
        "self._remove_spec(state.ref, state.metadata)",
        "pass",
    ),
    Guard("the CDI spec of a claim without state", _ENGINE + "Preparer.unprepare", "self._remove_files(ref)", "pass"),
    Guard(
        "a removal that has not reached the disk yet",
        _ENGINE + "Preparer.unprepare",
        "self._store.delete(ref.uid)",
        "pass",
    ),
    Guard(
        "a removal that a power failure takes back",
        _STORE + "delete",
        "survive_power_loss=self._durable",
        "survive_power_loss=False",
    ),
    Guard("CDI specs of nobody at the start", _CDI + "_sweep", "if is_held(claim):", "if True:"),
    Guard("temporary CDI specs at the start", _CDI + "_sweep", "self._files.discard_temporary(path)", "pass"),
    Guard(
        "temporary state files at the start",
        _STORE + "_sweep",
        "self._files.discard_temporary(self.directory / name)",
        "pass",
    ),
    Guard("temporary files of removed ones", "files:Files.remove", "(target, _temporary(target))", "(target,)"),
    Guard("state of an earlier boot", _STORE + "migrate", "_remove(place)", "pass"),
)
