"""What a container gets of a prepared claim: the OCI spec that a runtime makes of the driver's CDI spec, easy to read.

assert container.env == {"SERIAL_SPEED": "9600"}
assert container.devices["/dev/serial-port"]["minor"] == 3
assert container.mounts["/usr/lib/libfoo.so"]["source"] == "/opt/foo/libfoo.so"
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from dra_sdk.model import JSON


@dataclass(frozen=True)
class ContainerView:
    """One container. `cdi_ids` are what the kubelet asks the runtime for, `oci` the whole OCI spec."""

    name: str
    cdi_ids: tuple[str, ...]
    oci: JSON = field(repr=False)
    root: Path = field(repr=False, default=Path("/"))

    @property
    def env(self) -> dict[str, str]:
        """The environment variables."""
        return dict(_pair(variable) for variable in self.oci.get("process", {}).get("env", []))

    @property
    def devices(self) -> dict[str, JSON]:
        """The device nodes by their path in the container: `type`, `major`, `minor`, `fileMode`, `uid`, `gid`."""
        return {each["path"]: each for each in self.oci.get("linux", {}).get("devices", [])}

    @property
    def access(self) -> list[JSON]:
        """What the device cgroup allows: `type`, `major`, `minor`, `access`."""
        rules: list[JSON] = self.oci.get("linux", {}).get("resources", {}).get("devices", [])
        return rules

    @property
    def mounts(self) -> dict[str, JSON]:
        """The mounts by their path in the container: `source` on the node, `options`, `type`."""
        return {each["destination"]: each for each in self.oci.get("mounts", [])}

    @property
    def net_devices(self) -> dict[str, str]:
        """The network devices that are moved into the container: name on the node → name in the container."""
        return {host: each["name"] for host, each in self.oci.get("linux", {}).get("netDevices", {}).items()}

    @property
    def hooks(self) -> dict[str, list[JSON]]:
        """The OCI hooks by when they run."""
        found: dict[str, list[JSON]] = self.oci.get("hooks", {})
        return found

    @property
    def groups(self) -> list[int]:
        """The additional groups of its process."""
        gids: list[int] = self.oci.get("process", {}).get("user", {}).get("additionalGids", [])
        return gids

    def read(self, path: str) -> str:
        """A file as the container sees it through one of its mounts; AssertionError where no mount holds the path."""
        for destination, mount in sorted(self.mounts.items(), key=lambda item: -len(item[0])):
            if path == destination or path.startswith(destination.rstrip("/") + "/"):
                rest = path[len(destination) :].lstrip("/")
                return (source_of(mount, self.root) / rest).read_text()
        raise AssertionError(f"container {self.name} has no mount with {path}; mounts: {sorted(self.mounts) or 'none'}")


def source_of(mount: JSON, root: Path) -> Path:
    """Where the source of a mount lies: under the node's root, or in a directory of the SDK as it is."""
    source = Path(mount["source"])
    below = root / str(source).lstrip("/")
    return below if below.exists() or not source.exists() else source


def _pair(variable: str) -> tuple[str, str]:
    name, _, value = variable.partition("=")
    return name, value
