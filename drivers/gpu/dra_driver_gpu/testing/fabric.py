"""A Fabric Manager in memory, with the partitions of an HGX board: all sets of 1, 2, 4 and 8 neighbouring GPUs.

fabric = MemoryFabricManager(8)
driver = GpuDriver(GpuSettings(fabric_manager="/run/fm", passthrough=True), fabric=lambda *_: fabric)
"""

from __future__ import annotations

from dataclasses import replace

from dra_driver_gpu.fabric_manager import FabricError, Partition


class MemoryFabricManager:
    """The `FabricManager` protocol. `calls` lists what was asked; `active` are the partitions that are connected."""

    def __init__(self, gpus: int) -> None:
        sizes = [size for size in (8, 4, 2, 1) if size <= gpus]
        sets = [range(first, first + size) for size in sizes for first in range(1, gpus + 1, size)]
        self._partitions = {number: Partition(number, False, frozenset(modules)) for number, modules in enumerate(sets)}
        self.calls: list[str] = []
        self.fails_always = False
        self._fail_at, self._after = 0, False

    @property
    def active(self) -> set[int]:
        """The partitions that are active."""
        return {partition.id for partition in self._partitions.values() if partition.active}

    def fail_call(self, nth: int, *, after: bool = False) -> None:
        """Let the `nth` call from now on fail; with `after` it takes effect before it fails."""
        self._fail_at, self._after = len(self.calls) + nth, after

    def partitions(self) -> list[Partition]:
        """See `FabricManager.partitions`."""
        self._enter("partitions")
        return list(self._partitions.values())

    def activate(self, partition: int) -> None:
        """See `FabricManager.activate`."""
        self._change(f"activate {partition}", partition, active=True)

    def deactivate(self, partition: int) -> None:
        """See `FabricManager.deactivate`."""
        self._change(f"deactivate {partition}", partition, active=False)

    def _change(self, call: str, partition: int, *, active: bool) -> None:
        fails_later = self._enter(call)
        mine = self._partitions[partition]
        others = [other for other in self._partitions.values() if other.active and other.modules & mine.modules]
        if mine.active is active or (active and others):
            raise FabricError(f"Fabric Manager: {call}: in use, or active already (return value -7)")
        self._partitions[partition] = replace(mine, active=active)
        if fails_later:
            raise FabricError(f"Fabric Manager: {call}: injected")

    def _enter(self, call: str) -> bool:
        """Record a call; True if it must fail after its effect. Raises FabricError if it fails before."""
        self.calls.append(call)
        fails = self.fails_always or len(self.calls) == self._fail_at
        if fails and not (self._after and call != "partitions"):
            raise FabricError(f"Fabric Manager: {call}: injected")
        return fails
