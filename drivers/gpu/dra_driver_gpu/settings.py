"""The settings of the GPU driver on a node: environment variables `DRA_GPU_…`, each with a default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from dra_sdk import DriverSettings
from dra_sdk.hardware import parse_pci_address
from dra_sdk.hardware.sharing import Sharing
from dra_sdk.settings import HostPath, KubeletPath, Parsed, Seconds, split_words


@dataclass(frozen=True, slots=True)
class GpuIdentity:
    """What a list of GPUs can name a GPU by.

    minor: its minor number; None if it is not known.
    uuid: its UUID; empty if it is not known.
    pci_address: its PCI address; empty if it is not known.
    product: its product name; empty if it is not known.
    """

    minor: int | None = None
    uuid: str = ""
    pci_address: str = ""
    product: str = ""

    def matches(self, word: str) -> bool:
        """Return whether one word of a list names this GPU."""
        if word.isdecimal():
            return self.minor == int(word)
        if word.upper().startswith("GPU-"):
            return self.uuid.lower() == word.lower()
        if word.count(":"):
            return self.pci_address == parse_pci_address(word)
        return bool(self.product) and fnmatchcase(self.product.lower(), word.lower())


@dataclass(frozen=True, slots=True)
class GpuSelection:
    """Which GPUs are published.

    allow: the GPUs to publish; empty for all.
    hide: the GPUs not to publish, even if `allow` names them.
    """

    allow: Sequence[str] = ()
    hide: Sequence[str] = ()

    def includes(self, gpu: GpuIdentity) -> bool:
        """Return whether this GPU is published."""
        allowed = not self.allow or any(map(gpu.matches, self.allow))
        return allowed and not any(map(gpu.matches, self.hide))


def parse_gpus(text: str) -> list[str]:
    """Return the words of a list of GPUs, separated by commas. Raises ValueError for a word that can name no GPU."""
    words = split_words(text)
    for word in words:
        if word.upper().startswith("MIG-"):
            raise ValueError(f"{word} is a MIG device; lists name whole GPUs")
        if word.upper().startswith("GPU-") and word[4:].isdecimal():
            raise ValueError(f"{word} is the name of a device; use its minor number, {word[4:]}")
        if ":" in word:
            parse_pci_address(word)
    return words


WaitSeconds: TypeAlias = Annotated[float, Seconds(40.0, "the kubelet waits 45 for a claim")]
Gpus: TypeAlias = Annotated[tuple[str, ...], Parsed(parse_gpus, "GPUs, separated by commas")]
Xid: TypeAlias = Annotated[int, Field(ge=1, le=0xFFFF)]
Xids: TypeAlias = Annotated[frozenset[Xid], Parsed(split_words, "XIDs, separated by commas")]


class GpuSettings(DriverSettings, prefix="DRA_GPU_"):
    """The settings of one node. All paths are those of the host, wherever its root is mounted."""

    driver_root: HostPath = Field(
        default="/", description="where the NVIDIA driver is installed on the host, e.g. `/run/nvidia/driver`"
    )
    dev_root: HostPath | None = Field(
        default=None,
        description="what contains `/dev` with its device nodes; by default the driver root if it has "
        "`/dev/nvidiactl`, else `/`",
    )
    state_dir: KubeletPath = Field(
        default="plugins/gpu.nvidia.com",
        description="where the driver records its changes; directories of MPS daemons",
    )
    cdi_hook: HostPath | None = Field(
        default=None, description="`nvidia-cdi-hook` on the host; by default searched for under the driver root"
    )
    dynamic_mig: bool = Field(
        default=False, description="publish every possible MIG device, and create it when it is allocated"
    )
    passthrough: bool = Field(default=False, description="publish a VFIO device for each GPU as well")
    fabric_manager: HostPath | None = Field(
        default=None,
        description="the socket of a Fabric Manager with `FABRIC_MODE=1`, whose partitions are activated for VFIO, "
        "e.g. `/run/nvidia-fabricmanager/socket`",
    )
    list_attributes: bool = Field(
        default=False,
        description="publish `numaNode` as a list, with the near nodes of the same socket; for clusters with the "
        "feature gate DRAListTypeAttributes",
    )
    sharing: Sharing = Field(
        default=Sharing(),
        description="how claims share a device",
    )
    allow: Gpus = Field(
        default=(),
        description="GPUs to publish: minor numbers, UUIDs, PCI addresses or patterns of product names; by default all",
    )
    hide: Gpus = Field(default=(), description="GPUs not to publish, in the same words; takes precedence over allow")
    benign_xids: Xids = Field(
        default=frozenset(), description="XIDs that leave a GPU healthy, in addition to 13, 31, 43, 45, 68 and 109"
    )
    ecc_counters: bool = Field(
        default=True,
        description="whether a count of uncorrected memory errors makes a GPU unhealthy if its driver names no "
        "recovery action (before R570); their events always do",
    )
    mps: bool = Field(default=True, description="whether claims may use MPS")
    mps_shm: Literal["private", "host"] = Field(
        default="private",
        description="whether an MPS daemon and its clients have a private `/dev/shm` or use the host's",
    )
    mps_seconds: WaitSeconds = Field(default=20.0, description="how long an MPS daemon may take to start")
    vfio_seconds: WaitSeconds = Field(
        default=30.0, description="how long to wait until nobody uses a GPU that is passed through"
    )
    busy_seconds: WaitSeconds = Field(
        default=10.0, description="how long to wait for the last process to leave a MIG device"
    )

    @property
    def selection(self) -> GpuSelection:
        """Which GPUs are published."""
        return GpuSelection(self.allow, self.hide)
