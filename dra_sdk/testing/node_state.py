"""What a release of a driver keeps on a node, saved as files, so that the tests of later releases continue it.

    NodeState(samples / "1.0").save(driver)          # with the old release, once its claims are prepared

    state = NodeState(samples / "1.0")               # in a test
    state.restore(dra_node)
    state.assert_continued(dra_driver(SerialDriver))

The folder has the files as they lie below the directory of a `FakeNode`, with `/@node` for this directory, and
`release.json`: the boot ID, the allocated claims, what the old release answered for each that was prepared, and the
names by which users know the driver. The hardware is not in it: a test makes the same machine, and puts it into the
state in which the old release left it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.model.config import json_schema
from dra_sdk.node.files import PREFIX
from dra_sdk.testing.harness import DriverHarness
from dra_sdk.testing.node import FakeNode
from dra_sdk.testing.prepared import PreparedClaim

_PLACE: Final = b"/@node"
_ANSWERED: Final = ("request", "pool", "name", "cdi_ids")


class NodeState:
    """The folder `directory` of one release."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._release = directory / "release.json"

    def save(self, driver: DriverHarness, *state_dirs: str) -> None:
        """Save what the SDK keeps, and the driver's own directories `state_dirs` on the node, such as `/var/lib/x`."""
        node = driver.node
        complete = [held.uid for held in driver.held if held.complete]
        answers = {uid: _answer(driver.prepare(driver.cluster.claims[uid])) for uid in complete}
        place = node.root.parent
        for folder in (driver.data, node.cdi_dir, *map(node.path, state_dirs)):
            for path in folder.rglob("*"):
                if path.is_file() and not path.is_symlink():
                    self._write(path.relative_to(place), _moved(path.read_bytes(), bytes(place), _PLACE))
        claims = list(driver.cluster.claims.values())
        saved = {"boot_id": node.boot_id, "names": _names(driver), "claims": claims, "answers": answers}
        self._write(Path(self._release.name), json.dumps(saved, indent=1).encode() + b"\n")

    def restore(self, node: FakeNode) -> None:
        """Put the files on a node, which has the boot ID of the old release from now on."""
        node.boot_id = self._read()["boot_id"]
        node.file("/proc/sys/kernel/random/boot_id", f"{node.boot_id}\n")
        for path, content in self._files(node.root.parent):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.write_bytes(content)
            path.chmod(0o600)

    def assert_continued(self, driver: DriverHarness) -> None:
        """Start the driver on this state and let the kubelet prepare every claim again, then unprepare all.

        AssertionError if a name is missing, other claims are held, an answer differs, a file changes before the first
        unprepare, but one that was written half, or something is left.
        """
        driver.restart()
        saved, names = self._read(), _names(driver)
        missing = {kind: sorted({*old} - {*names[kind]}) for kind, old in saved["names"].items()}
        _assert_equal("missing names", {kind: [] for kind in missing}, missing)
        claims = {claim["metadata"]["uid"]: driver.cluster.adopt(claim) for claim in saved["claims"]}
        _assert_equal("held claims", sorted(claims), sorted(held.uid for held in driver.held))
        for uid, answer in saved["answers"].items():
            _assert_equal(f"answer for claim {uid}", answer, _answer(driver.prepare(claims[uid])))
        changed = [
            str(path)
            for path, content in self._files(driver.node.root.parent)
            if not path.name.startswith(PREFIX) and (not path.is_file() or path.read_bytes() != content)
        ]
        _assert_equal("files that a start and repeated prepares change", [], changed)
        for uid in claims.keys() - saved["answers"].keys():
            driver.prepare(claims[uid])
        for claim in claims.values():
            driver.unprepare(claim)
        driver.assert_clean()

    def _read(self) -> JSON:
        saved: JSON = json.loads(self._release.read_bytes())
        return saved

    def _files(self, place: Path) -> Iterator[tuple[Path, bytes]]:
        """Yield the files of a node in the directory `place`."""
        for path in sorted(self.directory.rglob("*")):
            if path.is_file() and path != self._release:
                yield place / path.relative_to(self.directory), _moved(path.read_bytes(), _PLACE, bytes(place))

    def _write(self, path: Path, content: bytes) -> None:
        written = self.directory / path
        written.parent.mkdir(parents=True, exist_ok=True)
        written.write_bytes(content)


def _answer(prepared: PreparedClaim) -> list[JSON]:
    """Return what the kubelet gets, as it is read from a JSON file."""
    devices = [asdict(device) for device in prepared.devices]
    return [{name: json.loads(json.dumps(device[name])) for name in _ANSWERED} for device in devices]


def _names(driver: DriverHarness) -> dict[str, list[str]]:
    """Return what is written in manifests, claims, dashboards and alerts."""
    info, settings = driver.info, getattr(driver.plugin, "settings_class", None)
    schemas = json_schema(info.configs, info.name)["$defs"].values()
    metrics = driver.metrics() if driver.driver.implements("dra_metrics") else []
    return {
        "driver": [info.name, info.cdi_kind],
        "settings": [f"{setting.variable} {setting.key}" for setting in settings.documentation()] if settings else [],
        "configuration": [f"{config.api_version} {config.kind}" for config in info.configs],
        "fields": sorted({field for schema in schemas for field in schema.get("properties", ())}),
        "metrics": sorted({gauge.name for gauge in metrics}),
    }


def _moved(content: bytes, old: bytes, new: bytes) -> bytes:
    """Return a file for another place of the node, with the checksum that the first line of a state file has."""
    head, newline, body = content.partition(b"\n")
    moved = body.replace(old, new)
    return head.replace(old, new).replace(_sum(body), _sum(moved)) + newline + moved


def _sum(body: bytes) -> bytes:
    return hashlib.sha256(body.removesuffix(b"\n")).hexdigest().encode()


def _assert_equal(what: str, wanted: Any, found: Any) -> None:
    if wanted != found:
        raise AssertionError(f"{what}: want {wanted}, found {found}")
