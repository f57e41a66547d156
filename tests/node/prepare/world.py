"""A node in a directory: lamps as hardware, a dict as API server, and everything real in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from dra_sdk import Claim, ContainerEdits, Device, HeldClaim, Node, PreparedDevice
from dra_sdk.errors import NotFoundError
from dra_sdk.loader import Driver
from dra_sdk.model.claim import NO_DEADLINE, ClaimRef, Deadline
from dra_sdk.node.files import Files
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.metadata.directory import MetadataDirectory
from dra_sdk.node.prepare.cdi_specs import CdiSpecs
from dra_sdk.node.prepare.checkpoint_store import CheckpointStore
from dra_sdk.node.prepare.counters import PoolCounters
from dra_sdk.node.prepare.dependencies import Dependencies, Undone
from dra_sdk.node.prepare.engine import Preparer
from tests.lamps import NAME, LampConfig, LampDriver

POOL = "node-a"


def _result(device: Any) -> dict[str, Any]:
    if isinstance(device, dict):
        return device
    request, lamp = device if isinstance(device, tuple) else ("r", device)
    return {"request": request, "device": lamp}


class World:
    """One node: directories, the API server's claims, and preparers over them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lamps, self.claims, self.cdi = root / "lamps", root / "claims", root / "cdi"
        self.lamps.mkdir(parents=True, exist_ok=True)
        self.api: dict[str, dict[str, Any]] = {}
        self.pods: dict[tuple[str, str], dict[str, Any]] = {}
        self.fetched: list[str] = []
        self.locks: list[NamedLocks] = []
        self.counters = PoolCounters()
        self.driver = LampDriver(self.lamps)

    def preparer(
        self,
        plugin: Any = None,
        *,
        boot_id: str = "boot-1",
        files: Files | None = None,
        shared: bool = False,
        durable: bool = True,
        metadata: bool = False,
        extensions: Sequence[object] = (),
        undone: Undone = lambda _ref, _steps: None,
        ended: Callable[[], bool] = lambda: False,
    ) -> Preparer:
        """A preparer as a fresh process has it: nothing but what is on disk, of which it has read what came first."""
        driver = Driver.of(plugin or self.driver, extensions)
        store = CheckpointStore(self.claims, files, shared=shared, durable=durable)
        cdi = CdiSpecs(self.cdi, driver.info.cdi_kind, NAME, files)
        locks = NamedLocks(self.root / "locks" if shared else None)
        self.locks.append(locks)
        dependencies = Dependencies(
            store=store,
            cdi=cdi,
            fetch=self.fetch,
            fetch_pod=self.fetch_pod,
            find_device=self.find_device,
            find_counters=lambda _pool: self.counters,
            boot_id=boot_id,
            locks=locks,
            undone=undone,
            metadata=MetadataDirectory(NAME, self.root, files or Files()) if metadata else None,
        )
        made = Preparer(driver, Node("node-a", self.root), dependencies)
        made.recover(ended)
        return made

    def close(self) -> None:
        """Close the lock files of all preparers."""
        for locks in self.locks:
            locks.close()

    def fetch(self, ref: ClaimRef, _deadline: Deadline = NO_DEADLINE) -> dict[str, Any]:
        """GET a claim."""
        self.fetched.append(ref.uid)
        for claim in list(self.api.values()):  # the test may add claims meanwhile
            if (claim["metadata"]["namespace"], claim["metadata"]["name"]) == (ref.namespace, ref.name):
                return claim
        raise NotFoundError(f"resourceclaims {ref.namespace}/{ref.name} not found", status=404)

    def fetch_pod(self, namespace: str, name: str, _deadline: Deadline = NO_DEADLINE) -> dict[str, Any]:
        """GET a pod."""
        if (namespace, name) not in self.pods:
            raise NotFoundError(f"pods {namespace}/{name} not found", status=404)
        return self.pods[namespace, name]

    def find_device(self, pool: str, name: str) -> Device | None:
        """What was discovered."""
        if pool == POOL and name.startswith("lamp-"):
            return self.counters.devices.get(name, Device(name))
        return None

    def claim(self, uid: str, *devices: Any, config: Any = ()) -> ClaimRef:
        """Put an allocated claim into the API; a device is a lamp for request `r`, `(request, lamp)` or a result."""
        results = [{"driver": NAME, "pool": POOL, **_result(each)} for each in devices]
        self.api[uid] = {
            "metadata": {"namespace": "default", "name": f"claim-{uid}", "uid": uid},
            "status": {"allocation": {"devices": {"results": results, "config": list(config)}}},
        }
        return ClaimRef("default", f"claim-{uid}", uid)

    def shining(self) -> dict[str, str]:
        """The lamps that are on and the claims they shine for."""
        return {path.name: path.read_text() for path in sorted(self.lamps.iterdir())}

    def specs(self) -> dict[str, Any]:
        """The CDI specs, by file name, temporary ones included."""
        found = sorted(self.cdi.iterdir()) if self.cdi.exists() else []
        return {path.name: path.name.endswith(".json") and json.loads(path.read_text()) for path in found}

    def states(self) -> list[str]:
        """What lies in the state directory."""
        return sorted(path.name for path in self.claims.iterdir())

    def is_clean(self) -> bool:
        """Whether nothing is left: no lamp, state, spec or temporary file."""
        return (self.shining(), self.states(), self.specs()) == ({}, [], {})


class FailingDriver(LampDriver):
    """Raises at one device of prepare, or in unprepare, as long as its attributes say so."""

    def __init__(self, lamps: Path) -> None:
        super().__init__(lamps)
        self.fails_at: str | None = None
        self.after_on = False
        self.undo_fails = False

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        self.prepared.append(claim.uid)
        for device in claim.devices:
            if device.name == self.fails_at and not self.after_on:
                raise OSError(5, f"{device.name} is burnt")
            self.put_on(device.name, claim.uid)
            if device.name == self.fails_at:
                raise OSError(5, f"{device.name} is burnt")
            yield device.prepared(ContainerEdits(env={"L": device.name}), data={"lamp": device.name})
        if self.fails_at == "end":
            raise OSError(5, "burnt at the end")

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        if self.undo_fails:
            raise OSError(16, "switch is stuck")
        super().dra_unprepare(claim, node)


class FailingDisk:
    """Makes the steps fail that `when` picks."""

    def __init__(self, when: Any) -> None:
        self.when = when

    def __call__(self, step: str, path: Path) -> None:
        if self.when and self.when(step, path):
            raise OSError(28, "No space left on device")
