"""What a driver says about itself, and the node that it runs on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dra_sdk.model.class_fields import unknown
from dra_sdk.model.config import OpaqueConfig


@dataclass(frozen=True, slots=True)
class DriverInfo:
    """The answer of `dra_driver_info`.

        DriverInfo("gpu.example.com", configs=[GpuConfig])

    name: name of the driver in ResourceSlices, claims and sockets: a DNS subdomain of at most 63 characters, in a
        domain of its vendor.
    configs: classes of opaque configuration that the driver accepts, each with its own `api_version` and `kind`. A
        claim without configuration gets the defaults of the first one.
    cdi_kind: kind of the driver's CDI devices, `vendor/class`. Empty: `<name>/device`.
    metadata: True: containers get a read-only file with the attributes of their devices (KEP-5304).
    volatile: True: a reboot undoes everything that `dra_prepare` does, as with network interfaces that move to pods.
        The state of claims is then void after a reboot, and no call waits for the disk.
    capture: files and directories that `dra-sdk capture --driver NAME` records beyond those of every node, as absolute
        patterns: `/sys/class/fpga/*`.
    nri: True: the driver is a plugin of the container runtime (NRI) even without hooks about pods and containers, so
        that `ContainerEdits.env_lists` are joined for each container. Its pod needs the runtime's socket.
    class_only: fields of configuration that only a DeviceClass may set, as paths such as `vf.vlan`. A claim that sets
        one is refused, and what the DeviceClass sets holds for every claim. ValueError if `configs` have no such field.
    """

    name: str
    configs: Sequence[type[OpaqueConfig]] = ()
    cdi_kind: str = ""
    metadata: bool = False
    volatile: bool = False
    capture: Sequence[str] = ()
    nri: bool = False
    class_only: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Fill in the default CDI kind; check `class_only`."""
        if wrong := unknown(self.configs, self.class_only):
            raise ValueError(f"class_only of driver {self.name}: no configuration class has {', '.join(wrong)}")
        if not self.cdi_kind:
            short = len(str(self.name)) == 1  # containerd 2.1 crashes on a vendor of one character
            vendor = f"dra.{self.name}" if short else self.name
            object.__setattr__(self, "cdi_kind", f"{vendor}/device")


@dataclass(frozen=True, slots=True)
class Host:
    """A host whose `/sys`, `/proc` and `/dev` are below one directory. Readers of `dra_sdk.hardware` take it.

    root: that directory. The default is the machine itself. In a container it is the directory where the host's root is
        mounted, in a test a directory that `dra_sdk.testing` filled.
    """

    root: Path = Path("/")

    @property
    def sys(self) -> Path:
        """The sysfs of the host."""
        return self.root / "sys"

    @property
    def proc(self) -> Path:
        """The procfs of the host."""
        return self.root / "proc"

    @property
    def dev(self) -> Path:
        """The device nodes of the host."""
        return self.root / "dev"


@dataclass(frozen=True, slots=True, init=False)
class Node(Host):
    """The node that a hook runs on: a host with a name.

        for device in read_pci_devices(node):  # from dra_sdk.hardware
            ...
        (node.sys / "class/net").iterdir()

    root: directory with the host's `/sys`, `/proc` and `/dev`: `/` on the node itself, the mount of the host's root in
        a container, or a directory that a test filled.
    name: name of the Node object in the API.
    discover_again: asks for another `dra_discover` soon, and returns at once. Any hook calls it that has changed which
        devices there are, such as `dra_prepare` by a mode of the hardware.
    warn: tells those who operate the node a sentence, as a warning in the log and an event `DriverWarning` on the
        node, and returns at once. Call it once for each thing that somebody has to change.
    """

    name: str = ""
    discover_again: Callable[[], None] = field(repr=False, compare=False, default=lambda: None)
    warn: Callable[[str], None] = field(repr=False, compare=False, default=lambda _note: None)

    def __init__(
        self,
        name: str,
        root: Path = Path("/"),
        *,
        discover_again: Callable[[], None] = lambda: None,
        warn: Callable[[str], None] = lambda _note: None,
    ) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "root", root)
        object.__setattr__(self, "discover_again", discover_again)
        object.__setattr__(self, "warn", warn)
