"""Reads CDI directories and injects named devices into an OCI spec: what a runtime does with `cdi_device_ids`.

    cdi = CdiDirectories([root / "etc", root / "run"])
    spec = cdi.inject({"ociVersion": "1.2.0"}, ["gpu.example.com/claim=1234"])

Directories are in rising priority (/etc/cdi, then /var/run/cdi) and are read every time. A device that two specs of one
directory define is a conflict, and neither definition is used. Contract: the CDI specification 1.1.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dra_sdk.errors import DraError, InvalidObjectError
from dra_sdk.model import JSON
from dra_sdk.tools.simulator import oci
from dra_sdk.wire.cdi.reading import read_spec

log = logging.getLogger(__name__)
_SUFFIXES = frozenset({".json", ".yaml"})


class UnresolvedDevicesError(DraError):
    """No loaded spec defines the devices `names`; the message has the errors of specs that were not loaded."""

    def __init__(self, names: Sequence[str], errors: dict[Path, list[str]]) -> None:
        known = "".join(f"; {path}: {', '.join(why)}" for path, why in sorted(errors.items()))
        super().__init__(f"unresolvable CDI devices {', '.join(names)}{known}")
        self.names = tuple(names)


@dataclass(frozen=True)
class CdiSpec:
    """One loaded spec file.

    path: of the file.
    priority: the index of its directory.
    content: the parsed file.
    """

    path: Path
    priority: int
    content: JSON

    @property
    def kind(self) -> str:
        """`vendor/class`."""
        return str(self.content["kind"])


@dataclass(frozen=True)
class CdiDevice:
    """One device of a spec.

    spec: its spec.
    name: its name, unique in the spec.
    edits: its own container edits.
    """

    spec: CdiSpec
    name: str
    edits: JSON

    @property
    def qualified(self) -> str:
        """`vendor/class=device`."""
        return f"{self.spec.kind}={self.name}"


@dataclass
class CdiSnapshot:
    """The contents of the directories at one moment.

    specs: the loaded specs.
    devices: by qualified name.
    errors: what is wrong, by file.
    """

    specs: list[CdiSpec] = field(default_factory=list)
    devices: dict[str, CdiDevice] = field(default_factory=dict)
    errors: dict[Path, list[str]] = field(default_factory=dict)


class CdiDirectories:
    """The CDI directories of one node, in rising priority. `host` looks up device nodes, by default on this machine."""

    def __init__(self, directories: Iterable[Path], host: oci.HostLookup = oci.host_device) -> None:
        self.directories = tuple(directories)
        self.host = host

    def load(self) -> CdiSnapshot:
        """Read every spec file. A missing directory counts as empty."""
        snapshot = CdiSnapshot()
        defined: dict[str, list[CdiDevice]] = {}
        for priority, directory in enumerate(self.directories):
            for path in _spec_files(directory):
                try:
                    spec = CdiSpec(path, priority, read_spec(path.read_bytes(), path.name))
                except (InvalidObjectError, OSError) as error:
                    snapshot.errors.setdefault(path, []).append(str(error))
                    continue
                snapshot.specs.append(spec)
                for device in spec.content["devices"]:
                    cdi_device = CdiDevice(spec, device["name"], device["containerEdits"])
                    defined.setdefault(cdi_device.qualified, []).append(cdi_device)
        for name, devices in defined.items():
            _add_device(snapshot, name, devices)
        return snapshot

    def inject(self, spec: JSON, names: Sequence[str]) -> JSON:
        """Return a copy of the OCI `spec` with the devices' edits; the common edits of a spec file come once and first.

        What two devices set differently is logged, because the runtime uses the last one silently.
        `UnresolvedDevicesError` if a device is unknown, `oci.InjectionError` if its edits cannot be applied.
        """
        devices = self._resolve(names)
        for problem in oci.overwritten({device.qualified: device.edits for device in devices}):
            log.warning("%s", problem)
        edits: list[JSON] = []
        used: set[Path] = set()
        for device in devices:
            if device.spec.path not in used:
                used.add(device.spec.path)
                edits.append(device.spec.content.get("containerEdits") or {})
            edits.append(device.edits)
        injected = copy.deepcopy(spec)
        oci.apply_edits(injected, oci.merged_edits(edits), self.host)
        return injected

    def overwritten(self, names: Sequence[str]) -> list[str]:
        """Return what two of these devices set differently in a container, a sentence for each."""
        return oci.overwritten({device.qualified: device.edits for device in self._resolve(names)})

    def _resolve(self, names: Sequence[str]) -> list[CdiDevice]:
        snapshot = self.load()
        missing = [name for name in names if name not in snapshot.devices]
        if missing:
            raise UnresolvedDevicesError(missing, snapshot.errors)
        return [snapshot.devices[name] for name in names]


def _add_device(snapshot: CdiSnapshot, name: str, devices: list[CdiDevice]) -> None:
    highest = max(device.spec.priority for device in devices)
    best = [device for device in devices if device.spec.priority == highest]
    if len(best) == 1:
        snapshot.devices[name] = best[0]
        return
    paths = ", ".join(device.spec.path.name for device in best)
    for device in best:
        snapshot.errors.setdefault(device.spec.path, []).append(f"conflicting device {name!r} in {paths}")


def _spec_files(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.suffix in _SUFFIXES and path.is_file())
