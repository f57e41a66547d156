"""The settings of the GPU driver on a node: environment variables `DRA_GPU_…`, each with a default."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Literal

from dra_sdk.hardware import parse_pci_address
from dra_sdk.hardware.settings import Setting, SettingsTable, parse_choice, parse_path, parse_seconds, parse_switch
from dra_sdk.hardware.sharing import Sharing

STATE_DIR: Final = "/var/lib/kubelet/plugins/gpu.nvidia.com"
_LARGEST_XID: Final = 0xFFFF
Shm = Literal["private", "host"]


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
        """Whether one word of a list names this GPU."""
        if word.isdecimal():
            return self.minor == int(word)
        if word.upper().startswith("GPU-"):
            return self.uuid.lower() == word.lower()
        if word.count(":"):
            return self.pci_address == parse_pci_address(word)
        return bool(self.product) and fnmatchcase(self.product.lower(), word.lower())


@dataclass(frozen=True, slots=True)
class Selection:
    """Which GPUs are published.

    allow: the GPUs to publish; empty for all.
    hide: the GPUs not to publish, even if `allow` names them.
    """

    allow: Sequence[str] = ()
    hide: Sequence[str] = ()

    def includes(self, gpu: GpuIdentity) -> bool:
        """Whether this GPU is published."""
        allowed = not self.allow or any(map(gpu.matches, self.allow))
        return allowed and not any(map(gpu.matches, self.hide))


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSettings:
    """The settings of one node. All paths are those of the host, wherever its root is mounted.

    driver_root: where the NVIDIA driver is installed.
    dev_root: what contains `/dev` with the device nodes; empty to derive it from `driver_root`.
    state_dir: where the driver keeps its records and the directories of MPS daemons.
    cdi_hook: `nvidia-cdi-hook`; empty to search for it.
    dynamic_mig: publish every possible MIG device, and create it when it is allocated.
    passthrough: publish a VFIO device for each GPU as well.
    fabric_manager: the socket of a Fabric Manager whose partitions are activated for VFIO; empty for none.
    list_attributes: publish `numaNode` as a list; the cluster must have the feature gate DRAListTypeAttributes.
    mps: claims may use MPS.
    mps_shm: whether an MPS daemon and its clients have a private `/dev/shm` or use the host's.
    mps_seconds: how long an MPS daemon may take to start.
    vfio_seconds: how long to wait until nobody uses a GPU that is passed through.
    busy_seconds: how long to wait for the last process to leave a MIG device.
    benign_xids: XIDs that leave a GPU healthy, in addition to `health.events.BENIGN_XIDS`.
    ecc_counters: a count of uncorrected memory errors is a fault of a GPU whose driver names no recovery action.
    sharing: how claims share a device.
    selection: which GPUs are published.
    """

    driver_root: str = "/"
    dev_root: str = ""
    state_dir: str = STATE_DIR
    cdi_hook: str = ""
    dynamic_mig: bool = False
    passthrough: bool = False
    fabric_manager: str = ""
    list_attributes: bool = False
    mps: bool = True
    mps_shm: Shm = "private"
    mps_seconds: float = 20.0
    vfio_seconds: float = 30.0
    busy_seconds: float = 10.0
    benign_xids: frozenset[int] = frozenset()
    ecc_counters: bool = True
    sharing: Sharing = field(default_factory=Sharing)
    selection: Selection = field(default_factory=Selection)

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> GpuSettings:
        """The settings in the environment. Raises SettingsError with the variable and what it must be."""
        found = SETTINGS.read(environment)
        selection = Selection(allow=found.pop("allow", ()), hide=found.pop("hide", ()))
        return cls(selection=selection, **found)


def parse_gpus(text: str) -> tuple[str, ...]:
    """The words of a list of GPUs, separated by commas. Raises ValueError for a word that can name no GPU."""
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    for word in words:
        if word.upper().startswith("MIG-"):
            raise ValueError(f"{word} is a MIG device; lists name whole GPUs")
        if word.upper().startswith("GPU-") and word[4:].isdecimal():
            raise ValueError(f"{word} is the name of a device; use its minor number, {word[4:]}")
        if ":" in word:
            parse_pci_address(word)
    return words


def parse_xids(text: str) -> frozenset[int]:
    """The numbers of a list such as `48,94`. Raises ValueError with the word that is not an XID."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    for word in words:
        if not (word.isascii() and word.isdecimal() and 0 < int(word) <= _LARGEST_XID):
            raise ValueError(f"{word!r} is not an XID: must be a number from 1 to {_LARGEST_XID}")
    return frozenset(map(int, words))


_seconds = parse_seconds(40.0, "the kubelet waits 45 for a claim")
SETTINGS: Final = SettingsTable(
    "DRA_GPU_",
    (
        Setting(
            "driver_root",
            parse_path,
            "/",
            "where the NVIDIA driver is installed on the host, e.g. `/run/nvidia/driver`",
        ),
        Setting(
            "dev_root",
            parse_path,
            "the driver root if it has `/dev/nvidiactl`, else `/`",
            "what contains `/dev` with its device nodes",
        ),
        Setting("state_dir", parse_path, STATE_DIR, "where the driver records its changes; directories of MPS daemons"),
        Setting("cdi_hook", parse_path, "found under the driver root", "`nvidia-cdi-hook` on the host"),
        Setting(
            "dynamic_mig",
            parse_switch,
            "false",
            "publish every possible MIG device, and create it when it is allocated",
        ),
        Setting("passthrough", parse_switch, "false", "publish a VFIO device for each GPU as well"),
        Setting(
            "fabric_manager",
            parse_path,
            "none",
            "the socket of a Fabric Manager with `FABRIC_MODE=1`, whose partitions are activated for VFIO, e.g. "
            "`/run/nvidia-fabricmanager/socket`",
        ),
        Setting(
            "list_attributes",
            parse_switch,
            "false",
            "publish `numaNode` as a list, with the near nodes of the same socket; for clusters with the feature gate "
            "DRAListTypeAttributes",
        ),
        Setting(
            "sharing",
            Sharing.parse,
            "disabled",
            "how claims share a device: `disabled`, `memory`, `unlimited` or a number of claims",
        ),
        Setting(
            "allow",
            parse_gpus,
            "all",
            "GPUs to publish: minor numbers, UUIDs, PCI addresses or patterns of product names",
        ),
        Setting("hide", parse_gpus, "none", "GPUs not to publish, in the same words; takes precedence over allow"),
        Setting(
            "benign_xids",
            parse_xids,
            "none",
            "XIDs that leave a GPU healthy, in addition to 13, 31, 43, 45, 68 and 109",
        ),
        Setting(
            "ecc_counters",
            parse_switch,
            "true",
            "whether a count of uncorrected memory errors makes a GPU unhealthy if its driver names no recovery action "
            "(before R570); their events always do",
        ),
        Setting("mps", parse_switch, "true", "whether claims may use MPS"),
        Setting(
            "mps_shm",
            parse_choice("private", "host"),
            "private",
            "whether an MPS daemon and its clients have a `private` `/dev/shm` or use the `host`'s",
        ),
        Setting("mps_seconds", _seconds, "20", "how long an MPS daemon may take to start"),
        Setting("vfio_seconds", _seconds, "30", "how long to wait until nobody uses a GPU that is passed through"),
        Setting("busy_seconds", _seconds, "10", "how long to wait for the last process to leave a MIG device"),
    ),
)
