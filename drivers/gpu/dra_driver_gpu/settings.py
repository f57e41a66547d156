"""What an operator sets for a node: environment variables `DRA_GPU_…`, each with a default."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from dra_driver_gpu.describe.sharing import Sharing
from dra_driver_gpu.health.xid import parse_xids
from dra_driver_gpu.selection import Selection
from dra_sdk import DraError
from dra_sdk.errors import SettingsError

PREFIX: Final = "DRA_GPU_"
STATE: Final = "/var/lib/kubelet/plugins/gpu.nvidia.com"
_LONGEST_WAIT: Final = 40.0  # the kubelet waits 45 s for a whole claim
_TRUE: Final = frozenset({"1", "true", "on", "yes"})
_FALSE: Final = frozenset({"0", "false", "off", "no"})
Shm = Literal["private", "host"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSettings:
    """The settings of one node. All paths are those of the host, wherever its root is mounted here.

    `dev_root` is empty where it follows from the driver root. `cdi_hook` is empty where the hook is to be looked for.
    """

    driver_root: str = "/"
    dev_root: str = ""
    state_dir: str = STATE
    cdi_hook: str = ""
    dynamic_mig: bool = False
    passthrough: bool = False
    mps: bool = True
    mps_shm: Shm = "private"
    mps_seconds: float = 20.0
    vfio_seconds: float = 30.0
    busy_seconds: float = 10.0
    benign_xids: frozenset[int] = frozenset()
    sharing: Sharing = field(default_factory=Sharing)
    selection: Selection = field(default_factory=Selection)

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> GpuSettings:
        """The settings in the environment; SettingsError names the variable that cannot be used, and why."""
        known = {setting.variable: setting for setting in SETTINGS}
        unknown = sorted(name for name in environment if name.startswith(PREFIX) and name not in known)
        if unknown:
            raise SettingsError(f"unknown environment variable {unknown[0]}: there are {', '.join(known)}")
        found: dict[str, Any] = {
            name: each.read(environment[name]) for name, each in known.items() if environment.get(name)
        }
        selection = Selection(allow=found.pop(f"{PREFIX}ALLOW", ()), hide=found.pop(f"{PREFIX}HIDE", ()))
        return cls(selection=selection, **{known[name].field: value for name, value in found.items()})


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable: the field that it fills, how its text is read, its default as text, and what it means."""

    field: str
    parse: Callable[[str], object]
    default: str
    help: str

    @property
    def variable(self) -> str:
        """The environment variable."""
        return PREFIX + self.field.upper()

    def read(self, text: str) -> object:
        """The value; SettingsError names the variable."""
        try:
            return self.parse(text)
        except (ValueError, DraError) as error:
            raise SettingsError(f"environment variable {self.variable}={text!r}: {error}") from None


def _path(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("must be an absolute path on the host")
    return "/" + text.strip("/")


def _switch(text: str) -> bool:
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError("must be true or false")


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= _LONGEST_WAIT:
        raise ValueError(f"must be above 0 and at most {_LONGEST_WAIT:.0f} seconds: the kubelet waits 45 for a claim")
    return value


def _shm(text: str) -> str:
    if text not in {"private", "host"}:
        raise ValueError("must be private or host")
    return text


SETTINGS: Final = (
    Setting("driver_root", _path, "/", "where the NVIDIA driver is installed on the host, `/run/nvidia/driver` say"),
    Setting("dev_root", _path, "the driver root if it has `/dev/nvidiactl`, else `/`", "where its device nodes are"),
    Setting("state_dir", _path, STATE, "where the driver notes what it changed; directories of MPS"),
    Setting("cdi_hook", _path, "found under the driver root", "`nvidia-cdi-hook` on the host"),
    Setting("dynamic_mig", _switch, "false", "publish every possible MIG device, and make it when it is allocated"),
    Setting("passthrough", _switch, "false", "publish a VFIO device for each GPU besides"),
    Setting("sharing", Sharing.parse, "disabled", "let claims share: `disabled`, `memory`, `unlimited` or a number"),
    Setting("allow", Selection.parse, "all", "GPUs to publish: minor number, UUID, PCI address, or a product pattern"),
    Setting("hide", Selection.parse, "none", "GPUs not to publish, in the same words; it wins over allow"),
    Setting("benign_xids", parse_xids, "none", "XIDs that leave a GPU healthy besides 13, 31, 43, 45, 68 and 109"),
    Setting("mps", _switch, "true", "whether claims may ask for MPS"),
    Setting("mps_shm", _shm, "private", "`/dev/shm` of an MPS daemon and its clients: of their own, or the host's"),
    Setting("mps_seconds", _seconds, "20", "how long an MPS daemon may take to start"),
    Setting("vfio_seconds", _seconds, "30", "how long to wait until nobody uses a GPU that is to be passed through"),
    Setting("busy_seconds", _seconds, "10", "how long to wait for the last process to leave a MIG device"),
)


def settings_table() -> str:
    """The table of all settings in Markdown, for the README."""
    rows = [f"| `{each.variable}` | {each.default} | {each.help} |" for each in SETTINGS]
    return "\n".join(["| variable | default | meaning |", "|---|---|---|", *rows]) + "\n"
