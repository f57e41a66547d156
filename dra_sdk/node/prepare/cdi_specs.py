"""The CDI spec of a claim: one file per claim, one CDI device per prepared device.

Separate CDI devices keep what belongs to one request out of containers that use another request of the same claim.
Source: CNCF Container Device Interface specification 1.1.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Final

from dra_sdk.errors import ClaimError, HookError, InvalidObjectError, SettingsError
from dra_sdk.model import JSON
from dra_sdk.model.claim import PreparedDevice
from dra_sdk.model.edits import ContainerEdits
from dra_sdk.node.files import Files, check_shared_directory, claim_lock, read, safe_id, targets, unfinished
from dra_sdk.node.locks import NamedLocks
from dra_sdk.wire import cdi

_SUFFIX: Final = ".json"


def name_devices(uid: str, devices: Sequence[PreparedDevice]) -> list[str]:
    """Return a CDI device name for each prepared device, in order; empty for a device without edits.

    HookError if CDI does not allow the name that the driver gives to a device.
    """
    claim = f"claim-{safe_id(uid)}"
    names: list[str] = []
    for device in devices:
        name = ""
        if device.cdi_name is not None and (problem := cdi.device_problem(device.cdi_name)):
            raise HookError(f"dra_prepare: cdi_name of device {device.pool}/{device.name}: {problem}")
        if not cdi.is_empty(device.edits):
            name = device.cdi_name or _default_name(claim, device)
            if not device.cdi_name and name in names:  # the same device twice in one request, from two pools
                name = f"{name}_{len(names)}"
        names.append(name)
    return names


def metadata_device_name(uid: str, request: str) -> str:
    """Return the name of the CDI device that mounts a request's metadata file."""
    return f"metadata-{safe_id(uid)}_{request}"


def request_device_name(uid: str, request: str) -> str:
    """Return the name of the CDI device whose variable tells the NRI plugin that a container uses a request."""
    return f"request-{safe_id(uid)}_{request}"


def build_spec(
    kind: str,
    names: Sequence[str],
    devices: Sequence[PreparedDevice],
    extra: Mapping[str, ContainerEdits] = MappingProxyType({}),
) -> JSON | None:
    """Return the CDI spec of these devices and of `extra` ones; None if it would be empty.

    HookError if two devices have one name and different edits; for edits that CDI or the types of
    `dra_sdk.model.edits` do not allow, it names the device and the field.
    """
    edits: dict[str, ContainerEdits] = dict(extra)
    for name, device in zip(names, devices, strict=True):
        if not name:
            continue
        own = replace(device.edits, env_lists={}) if device.edits.env_lists else device.edits  # `extra` has the lists
        same = edits.setdefault(name, own)
        if same is not own and same != own:
            raise HookError(f"dra_prepare yielded two devices with the CDI name {name!r} with different edits")
    try:
        return cdi.claim_spec(kind, edits) if edits else None
    except InvalidObjectError as error:
        of = {
            f"device {name}": f"device {device.pool}/{device.name}" for name, device in zip(names, devices, strict=True)
        }
        parts = (problem.partition(": ") for problem in error.problems)
        problems = "; ".join(f"{of.get(subject, subject)}: {problem}" for subject, _, problem in parts)
        raise HookError(f"dra_prepare yielded edits that cannot be used: {problems}") from error


class CdiSpecs:
    """The driver's own spec files in a CDI directory, which is usually on tmpfs, so its files can be lost.

    A file is `<driver>_claim-<id of the claim>.json`: drivers may share a kind and a claim may have devices of several
    drivers, but no two drivers of a node share a name, and none has an underscore.

    directory: the CDI directory.
    kind: `vendor/class`; InvalidObjectError if CDI does not allow it.
    driver: the driver's name.
    """

    def __init__(self, directory: Path, kind: str, driver: str, files: Files | None = None) -> None:
        if problem := cdi.kind_problem(kind):
            raise InvalidObjectError(f"CDI kind {kind!r}", [problem])
        self.directory = directory
        self.kind = kind
        self._driver = driver
        self._name_prefix = _name_prefix(driver)
        self._prefix = f"{directory}{os.sep}{self._name_prefix}"
        self._files = files or Files()

    def open(self, is_held: Callable[[str], bool], locks: NamedLocks | None = None) -> None:
        """Make the directory and remove specs that belong to no claim; SettingsError if that fails.

        `is_held` returns whether a claim, by its `safe_id`, has state. A spec whose claim's lock is held stays: another
        process handles that claim.
        """
        try:
            self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            check_shared_directory(self.directory)
            left = set(unfinished(self.directory, _SUFFIX))
            for name in targets(self.directory, _SUFFIX):
                if name.startswith(self._name_prefix):
                    claim = name.removeprefix(self._name_prefix).removesuffix(_SUFFIX)
                    if name in left or not is_held(claim):
                        self._sweep(claim, is_held, locks or NamedLocks())
        except OSError as error:
            raise SettingsError(f"cannot use CDI directory {self.directory}: {error.strerror or error}") from error

    def write(self, uid: str, spec: JSON | None) -> None:
        """Write `spec`, or remove the file if it is None. ClaimError if that fails."""
        if spec is None:
            self.remove(uid)
            return
        path = self._path(uid)
        try:
            try:
                self._write(path, spec)
            except FileNotFoundError:  # on tmpfs, the directory may have been removed since the start
                self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
                self._write(path, spec)
        except OSError as error:
            raise ClaimError(f"cannot write CDI spec {path}: {error.strerror or error}") from error

    def ensure(self, uid: str, spec: JSON | None) -> None:
        """Write the spec again if it is missing or differs."""
        if spec is None:
            return
        try:
            present = read(self._path(uid)) == _encode(spec)
        except OSError:
            present = False
        if not present:
            self.write(uid, spec)

    def remove(self, uid: str) -> None:
        """Remove a claim's spec; nothing to do if there is none. ClaimError if it cannot be removed."""
        path = self._path(uid)
        try:
            self._files.remove(path)
        except OSError as error:
            raise ClaimError(f"cannot remove CDI spec {path}: {error.strerror or error}") from error

    def variables(self, uid: str) -> dict[str, str]:
        """Return the environment that a claim's spec gives to containers; nothing if the spec cannot be read."""
        try:
            edits = [device["containerEdits"] for device in json.loads(read(self._path(uid)))["devices"]]
            return dict(variable.partition("=")[::2] for edit in edits for variable in edit.get("env", ()))
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}

    def _path(self, uid: str) -> str:
        return f"{self._prefix}{safe_id(uid)}{_SUFFIX}"

    def _write(self, path: str, spec: JSON) -> None:
        self._files.write(path, _encode(spec), mode=0o644, whole=False)  # written again for a claim after a boot

    def _sweep(self, claim: str, is_held: Callable[[str], bool], locks: NamedLocks) -> None:
        with locks.try_hold(claim_lock(claim)) as is_ours:
            if not is_ours:
                return
            path = f"{self._prefix}{claim}{_SUFFIX}"
            if is_held(claim):
                self._files.discard_temporary(path)
            else:
                self._files.remove(path)


def spec_path(directory: Path, driver: str, uid: str) -> Path:
    """Return where the spec of a driver's claim (UID or `safe_id`) lies in a CDI directory."""
    return directory / f"{_name_prefix(driver)}{safe_id(uid)}{_SUFFIX}"


def _name_prefix(driver: str) -> str:
    return f"{driver}_claim-"


def _default_name(claim: str, device: PreparedDevice) -> str:
    name = f"{claim}_{device.request.replace('/', '.')}_{device.name}"
    return name if device.share_id is None else f"{name}_{device.share_id}"


def _encode(spec: JSON) -> bytes:
    return json.dumps(spec).encode() + b"\n"  # indented, it takes ten times as long
