"""What a test sees of a prepared claim: the driver's answer, and what each container of the pod gets.

The container's OCI spec is made from the driver's CDI spec by the rules of a container runtime.

    container = prepared.container()
    assert container.env == {"PORT_SPEED": "9600"}
    assert container.devices["/dev/serial-port"]["minor"] == 3
    assert container.mounts["/usr/lib/libfoo.so"]["source"] == "/opt/foo/libfoo.so"
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef, HeldDevice
from dra_sdk.testing.node import FakeNode
from dra_sdk.tools.simulator.cdi import CdiDirectories

DEFAULT_CONTAINER: Final = "main"
"""The pod's only container, unless a test names others."""


@dataclass(frozen=True)
class ContainerView:
    """One container.

    name: its name in the pod.
    cdi_ids: the CDI devices that the kubelet passes to the runtime.
    oci: the OCI spec.
    root: the directory with the node's files.
    """

    name: str
    cdi_ids: tuple[str, ...]
    oci: JSON = field(repr=False)
    root: Path = field(repr=False, default=Path("/"))

    @property
    def env(self) -> dict[str, str]:
        """The environment variables."""
        return dict(variable.partition("=")[::2] for variable in self.oci.get("process", {}).get("env", []))

    @property
    def devices(self) -> dict[str, JSON]:
        """The device nodes by their path in the container: `type`, `major`, `minor`, `fileMode`, `uid`, `gid`."""
        return {device["path"]: device for device in self.oci.get("linux", {}).get("devices", [])}

    @property
    def access(self) -> list[JSON]:
        """What the device cgroup allows: `type`, `major`, `minor`, `access`."""
        rules: list[JSON] = self.oci.get("linux", {}).get("resources", {}).get("devices", [])
        return rules

    @property
    def mounts(self) -> dict[str, JSON]:
        """The mounts by their path in the container: `source` on the node, `options`, `type`."""
        return {mount["destination"]: mount for mount in self.oci.get("mounts", [])}

    @property
    def net_devices(self) -> dict[str, str]:
        """The network devices that move into the container: name on the node → name in the container."""
        return {host: device["name"] for host, device in self.oci.get("linux", {}).get("netDevices", {}).items()}

    @property
    def hooks(self) -> dict[str, list[JSON]]:
        """The OCI hooks, by the time at which they run."""
        hooks: dict[str, list[JSON]] = self.oci.get("hooks", {})
        return hooks

    @property
    def groups(self) -> list[int]:
        """The additional groups of its process."""
        gids: list[int] = self.oci.get("process", {}).get("user", {}).get("additionalGids", [])
        return gids

    def read(self, path: str) -> str:
        """Return a file that the container sees through one of its mounts; AssertionError if no mount has the path."""
        for destination, mount in sorted(self.mounts.items(), key=lambda item: -len(item[0])):
            if path == destination or path.startswith(destination.rstrip("/") + "/"):
                rest = path[len(destination) :].lstrip("/")
                return (_mount_source(mount, self.root) / rest).read_text()
        raise AssertionError(f"container {self.name} has no mount with {path}; mounts: {sorted(self.mounts) or 'none'}")


@dataclass(frozen=True)
class PreparedClaim:
    """A prepared claim.

    claim: the ResourceClaim.
    devices: the driver's answer to the kubelet.
    cdi: the claim's CDI spec; None if the driver needs none.
    containers: for each container of the pod, the requests that it uses; None for the whole claim.
    node: the node.
    """

    claim: JSON = field(repr=False)
    devices: tuple[HeldDevice, ...]
    cdi: JSON | None = field(repr=False)
    containers: Mapping[str, Sequence[str] | None] = field(repr=False)
    node: FakeNode = field(repr=False)

    @property
    def names(self) -> list[str]:
        """The names of the devices, in the order of the claim's allocation."""
        return [device.name for device in self.devices]

    @property
    def ref(self) -> ClaimRef:
        """Namespace, name and UID of the claim, as the kubelet sends them."""
        return ref_of(self.claim)

    def container(self, name: str = DEFAULT_CONTAINER, *others: PreparedClaim) -> ContainerView:
        """Return what a container gets by CDI. AssertionError if the node lacks the source of a mount: none starts.

        `others` are claims, also those of other drivers on the node, that it names after this one. Warns if two devices
        set something differently in the container, such as one environment variable to two values: a runtime uses the
        last one silently.
        """
        view, overwritten = inject((self, *others), name)
        for problem in overwritten:
            warnings.warn(f"container {name}: {problem}", stacklevel=2)
        return view

    def used(self, name: str) -> list[HeldDevice]:
        """Return the devices that a container uses. AssertionError if the pod does not have the container."""
        if name not in self.containers:
            raise AssertionError(f"the pod has no container {name!r}; it has {', '.join(self.containers)}")
        requests = self.containers[name]
        return [device for device in self.devices if requests is None or device.base_request in requests]


def inject(claims: Sequence[PreparedClaim], name: str) -> tuple[ContainerView, list[str]]:
    """Return what a container gets that names these claims, in this order, and what two devices set differently.

    AssertionError as `PreparedClaim.container`.
    """
    node = claims[0].node
    ids = tuple(dict.fromkeys(cdi_id for claim in claims for device in claim.used(name) for cdi_id in device.cdi_ids))
    directories = CdiDirectories([node.cdi_dir], node.host_device)
    view = ContainerView(name, ids, directories.inject({"ociVersion": "1.2.1"}, ids), node.root)
    sources = {mount["source"]: _mount_source(mount, node.root) for mount in view.mounts.values()}
    if missing := [source for source, path in sources.items() if not path.exists()]:
        raise AssertionError(f"container {name} mounts what the node does not have: {', '.join(missing)}")
    return view, directories.overwritten(ids)


def ref_of(claim: JSON) -> ClaimRef:
    """Return namespace, name and UID of a ResourceClaim."""
    metadata = claim["metadata"]
    return ClaimRef(metadata["namespace"], metadata["name"], metadata["uid"])


def _mount_source(mount: JSON, root: Path) -> Path:
    """Return the source of a mount: a path under the node's root, or a directory of the SDK itself."""
    source = Path(mount["source"])
    on_node = root / str(source).lstrip("/")
    return on_node if on_node.exists() or not source.exists() else source
