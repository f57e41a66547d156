"""What the driver writes down before it changes a GPU: steps in the claim's journal, and one record per GPU.

The journal of a claim lists its steps, so undoing a claim needs the journal alone. The record of a GPU holds what
belongs to the GPU, for all its claims: its state before the first claim, and which MIG instances we created.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from dra_driver_gpu.nvidia_node import NvidiaNode
from dra_sdk.hardware.records import Records

JSON: TypeAlias = dict[str, Any]
MIG_STEP: Final = "mig"
USE_STEP: Final = "use"
MPS_STEP: Final = "mps"
VFIO_STEP: Final = "vfio"
FABRIC_STEP: Final = "fabric"
"""The `step` of an entry in a claim's journal."""


@dataclass
class GpuRecord:
    """The record of one GPU, under its UUID; while it is bound to VFIO, under its PCI address.

    mig_mode: we turned MIG on.
    instances: the MIG instances that we created, by `instance_key`: the UIDs of their `claims`, and once an instance is
        complete its `uuid`, `gi` and `ci`.
    uses: the configurations of claims, by claim and device: `claim`, `device` and `policy`.
    compute_mode: the compute mode before the first of `uses`; None if we did not change it.
    time_slice: `set` while the time slice is not the default, `tried` while that is not certain, else empty.
    vfio: for a GPU that we bound to VFIO, its `claim`, the `entry` of the claim's journal, and the `name` that it has
        in NVML.
    """

    mig_mode: bool = False
    instances: dict[str, JSON] = field(default_factory=dict)
    uses: dict[str, JSON] = field(default_factory=dict)
    compute_mode: int | None = None
    time_slice: str = ""
    vfio: JSON = field(default_factory=dict)

    def has_instance(self, profile_id: int, start: int) -> bool:
        """Return whether we created the MIG instance of this profile at this memory slice."""
        return instance_key(profile_id, start) in self.instances

    def forget(self, uid: str) -> None:
        """Remove a claim, because the GPU is gone. `mig_mode` stays: MIG mode can outlive the loss of a GPU."""
        self.uses = {key: use for key, use in self.uses.items() if use["claim"] != uid}
        for made in self.instances.values():
            made["claims"] = [holder for holder in made["claims"] if holder != uid]
        self.instances = {key: made for key, made in self.instances.items() if made["claims"]}
        if not self.uses:
            self.compute_mode, self.time_slice = None, ""

    def steps(self, gpu: str) -> Iterator[tuple[str, JSON]]:
        """Yield the UIDs of all claims that the record names, each with a step that undoes what it did on this GPU."""
        if self.vfio:
            yield self.vfio["claim"], self.vfio["entry"]
        for use in self.uses.values():
            yield use["claim"], {"step": USE_STEP, "gpu": gpu, "device": use["device"]}
        for key, made in self.instances.items():
            profile, _, start = key.partition("-")
            for uid in made["claims"]:
                yield uid, {"step": MIG_STEP, "gpu": gpu, "profile": int(profile), "start": int(start)}


def instance_key(profile_id: int, start: int) -> str:
    """Return the key of a MIG instance in a record: the id of its profile and its first memory slice."""
    return f"{profile_id}-{start}"


def gpu_records(node: NvidiaNode) -> Records[GpuRecord]:
    """Return the records of a node."""
    directory = node.local(f"{node.settings.state_dir}/gpus")
    return Records(directory, GpuRecord, node.boot_id, node.clock)
