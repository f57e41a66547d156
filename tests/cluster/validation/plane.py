"""A control plane for the comparison: etcd and an API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dra_sdk.wire.profile import GATES as KNOWN
from dra_sdk.wire.profile import ServerProfile
from tests.cluster.harness.control_plane import BETA, ControlPlaneSettings, control_plane
from tests.cluster.harness.progress import Progress
from tests.cluster.validation.run import Comparison
from tests.cluster.validation.servers import OurServer, RealServer

GATES: Final = ("all", "default")
"""All gates of this API on, so that all fields are kept; or the defaults of the release, which drop some."""
_NEEDED: Final = {"DRAPartitionableDevicesType": "DRAResourcePoolStatus"}
"""Gates that an API server does not start with unless another one is on, which has no effect on these objects."""
_FLAGS: Final = {"apiserver": ["--disable-admission-plugins=ServiceAccount"]}


def profile_of(version: str, which: str) -> ServerProfile:
    """Returns the profile of a server with these gates."""
    return ServerProfile.of(version, _more_gates(version, which))


@contextmanager
def comparison(folder: Path, version: str, which: str, progress: Progress) -> Iterator[Comparison]:
    """Runs a control plane in a new folder below `folder`, and removes it afterwards."""
    profile, gates = profile_of(version, which), _more_gates(version, which)
    needed = {_NEEDED[name]: True for name in gates if name in _NEEDED}
    settings = ControlPlaneSettings(version, {**BETA, **gates, **needed} if gates else {}, flags=_FLAGS)
    with control_plane("valid", folder, settings, progress) as plane:
        real = RealServer(plane.api)
        try:
            yield Comparison(real, OurServer(profile), profile)
        finally:
            real.close()


def _more_gates(version: str, which: str) -> dict[str, bool]:
    """Returns the gates to turn on, which the release has off."""
    release = ServerProfile.of(version)
    known = (name for name, (since, _) in KNOWN.items() if since <= release.minor)
    return {name: True for name in known if which == "all" and not release.enabled(name)}
