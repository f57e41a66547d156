"""The CDI spec of a claim: one file per claim, one CDI device per prepared device.

Separate CDI devices keep what belongs to one request out of containers that use another request of the same claim.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from dra_sdk.errors import ClaimError, HookError, InvalidObjectError, SettingsError
from dra_sdk.model.claim import PreparedDevice
from dra_sdk.model.edits import ContainerEdits
from dra_sdk.node.prepare.files import Files
from dra_sdk.node.prepare.store import safe_id
from dra_sdk.wire import cdi as wire

_SUFFIX: Final = ".json"


def name_devices(uid: str, devices: Sequence[PreparedDevice]) -> list[str]:
    """A CDI device name for each prepared device, in order; empty where it edits nothing and needs none."""
    claim = f"claim-{safe_id(uid)}"
    names: list[str] = []
    for device in devices:
        name = ""
        if not wire.is_empty(device.edits):
            name = device.cdi_name or _default_name(claim, device)
            if not device.cdi_name and name in names:  # the same device twice in one request, from two pools
                name = f"{name}_{len(names)}"
        names.append(name)
    return names


def _default_name(claim: str, device: PreparedDevice) -> str:
    name = f"{claim}_{device.request.replace('/', '.')}_{device.name}"
    return name if device.share_id is None else f"{name}_{device.share_id}"


def name_metadata(uid: str, request: str) -> str:
    """The name of the CDI device that mounts a request's metadata file."""
    return f"metadata-{safe_id(uid)}_{request}"


def build_spec(
    kind: str,
    names: Sequence[str],
    devices: Sequence[PreparedDevice],
    extra: Mapping[str, ContainerEdits] = MappingProxyType({}),
) -> dict[str, Any] | None:
    """The CDI spec of these devices and `extra` ones, None if it would be empty; HookError if two fight for a name."""
    edits: dict[str, ContainerEdits] = dict(extra)
    for name, device in zip(names, devices, strict=True):
        if not name:
            continue
        same = edits.setdefault(name, device.edits)
        if same is not device.edits and same != device.edits:
            raise HookError(f"dra_prepare gave two devices the CDI name {name!r} with different edits")
    try:
        return wire.claim_spec(kind, edits) if edits else None
    except (AttributeError, TypeError) as error:
        raise HookError(f"dra_prepare gave edits that are not of dra_sdk's types: {error}") from error


class CdiDirectory:
    """The driver's own spec files in a CDI directory (which is usually on tmpfs, so anything in it can be lost).

    `kind` is `vendor/class`; InvalidObjectError where CDI does not allow it. Drivers may share a kind, so the names of
    files hold the `driver` too, unless it is the vendor.
    """

    def __init__(self, directory: Path, kind: str, files: Files | None = None, *, driver: str = "") -> None:
        if problem := wire.kind_problem(kind):
            raise InvalidObjectError(f"CDI kind {kind!r}", [problem])
        self.directory = directory
        self.kind = kind
        self._id = f"{driver}_claim-" if driver not in {"", wire.split_kind(kind)[0]} else "claim-"
        self._prefix = f"{directory}{os.sep}{wire.transient_spec_name(kind, self._id).removesuffix(_SUFFIX)}"
        self._files = files or Files()

    def open(self, held: Callable[[], Collection[str]], abandoned_after: float = 0.0) -> None:
        """Create the directory where needed and remove what belongs to no claim; SettingsError if that fails.

        `held` gives the ids (`safe_id`) of the claims with state. `abandoned_after` is the age in seconds from which a
        file without a claim is a leftover: a younger one may be what another process is at work on.
        """
        pattern = wire.transient_spec_name(self.kind, f"{self._id}*")
        try:
            self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            found = list(self.directory.glob(pattern))
            keep = {self.path(each).name for each in held()}
            lost = (path for path in found if path.name not in keep)
            self._files.discard(lost, older_than=abandoned_after)
            self._files.sweep(self.directory, f"{pattern}*", older_than=abandoned_after)
        except OSError as error:
            raise SettingsError(f"cannot use CDI directory {self.directory}: {error.strerror or error}") from error

    def path(self, uid: str) -> Path:
        """Where the spec of a claim lies (an id of it does as well)."""
        return Path(self._path(uid))

    def _path(self, uid: str) -> str:
        return f"{self._prefix}{safe_id(uid)}{_SUFFIX}"

    def write(self, uid: str, spec: dict[str, Any] | None) -> None:
        """Make the file say `spec`, or not exist for None."""
        if spec is None:
            self.remove(uid)
            return
        path = self._path(uid)
        try:
            try:
                self._write(path, spec)
            except FileNotFoundError:  # tmpfs: the directory may have gone since the start
                self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
                self._write(path, spec)
        except OSError as error:
            raise ClaimError(f"cannot write CDI spec {path}: {error.strerror or error}") from error

    def _write(self, path: str, spec: dict[str, Any]) -> None:
        self._files.write(path, _encode(spec), mode=0o644, survive_power_loss=False)  # rewritten after boot

    def ensure(self, uid: str, spec: dict[str, Any] | None) -> None:
        """Write the spec again if it was lost or changed behind our back."""
        if spec is None:
            return
        try:
            with open(self._path(uid), "rb", buffering=0) as file:  # noqa: PTH123 (a third of Path.read_bytes)
                present = file.read() == _encode(spec)
        except OSError:
            present = False
        if not present:
            self.write(uid, spec)

    def remove(self, uid: str) -> None:
        """Remove a claim's spec; nothing to do where there is none."""
        path = self._path(uid)
        try:
            self._files.remove(path)
        except OSError as error:
            raise ClaimError(f"cannot remove CDI spec {path}: {error.strerror or error}") from error


def _encode(spec: dict[str, Any]) -> bytes:
    return json.dumps(spec).encode() + b"\n"  # indented, it takes ten times as long
