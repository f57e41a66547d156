"""The CDI specs of the driver: one file for each claim."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.tools.conformance.mutants import Faults
from tests.tools.conformance.mutants.nri import PREFIX, cpus_of

JSON = dict[str, Any]


class Specs:
    def __init__(self, directory: Path, driver: str, faults: Faults) -> None:
        self.directory, self._driver, self._faults = directory, driver, faults

    @property
    def kind(self) -> str:
        return f"{self._driver}/device"

    def path(self, uid: str) -> Path:
        clean = "".join(char if char.isalnum() or char == "-" else "_" for char in uid)[:64]
        return self.directory / f"{self._driver}-device_{clean}.json"

    def write(self, uid: str, devices: list[JSON]) -> None:
        if "no-spec" in self._faults:
            return
        if "cleans-directory" in self._faults:
            for path in self.directory.iterdir():
                path.unlink()
        if "stumbles-over-others" in self._faults:
            for path in self.directory.glob("*.json"):
                json.loads(path.read_text())
        text = json.dumps(self._spec(uid, devices), indent=2)
        path = self.path(uid)
        if "in-place" in self._faults:
            with path.open("w") as file:
                for part in (text[:20], text[20:]):
                    file.write(part)
                    file.flush()
                    time.sleep(0.02)  # long enough for a reader
            return
        partial = path.with_name(f"{path.name}.tmp")  # a runtime reads every *.json
        partial.write_text(text)
        partial.chmod(0o666 if "open-spec" in self._faults else 0o644)
        partial.rename(path)

    def exists(self, uid: str) -> bool:
        return self.path(uid).exists()

    def remove(self, uid: str) -> None:
        if "keeps-specs" in self._faults:
            return
        self.path(uid).unlink(missing_ok=True)

    def clear(self) -> None:
        for path in self.directory.glob(f"{self._driver}-device_*.json"):
            path.unlink()

    def _spec(self, uid: str, devices: list[JSON]) -> JSON:
        entries = {device["cdi"]: {"name": device["cdi"], "containerEdits": self._edits(device)} for device in devices}
        if "nri" in self._faults:
            pinned = f"{PREFIX}{uid}={cpus_of(devices)}"
            for device in entries.values():
                device["containerEdits"]["env"].append(pinned)
        spec: JSON = {"cdiVersion": "0.5.0", "kind": self.kind, "devices": list(entries.values())}
        if "edits-for-all" in self._faults:
            spec["containerEdits"] = {"env": [f"ALL_{device['name']}=1" for device in devices]}
        if "invalid-spec" in self._faults:
            spec["colour"] = "red"
        return spec

    def _edits(self, device: JSON) -> JSON:
        edits: JSON = {"env": [f"DEVICE_{device['request']}={device['name']}"]}
        if "missing-mount" in self._faults:
            edits["mounts"] = [{"hostPath": "/conformance/absent", "containerPath": "/absent"}]
        if "missing-node" in self._faults:
            edits["deviceNodes"] = [{"path": "/dev/absent", "hostPath": "/dev/conformance-absent"}]
        return edits
