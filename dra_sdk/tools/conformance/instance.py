"""One running instance of the driver, found by its registration socket and registered as the kubelet would."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from dra_sdk.tools.conformance.evidence import Recorder
from dra_sdk.tools.conformance.launch import Process
from dra_sdk.tools.conformance.plugin import PLUGIN_VERSIONS, V1, ClaimsAnswer, PluginClient, RegistrationClient
from dra_sdk.tools.conformance.rpc import Answer, Channel
from dra_sdk.tools.simulator.kubelet.registration import sockets_in
from dra_sdk.wire.proto.pluginregistration_v1_pb2 import PluginInfo, RegistrationStatusResponse

LOOK = 0.02
PATIENT = 10.0
"""Seconds for a GetInfo that is only to find the driver; whether it is quick enough is a check of its own."""
Sockets = dict[str, tuple[int, int]]


@dataclass
class Instance:
    """A driver's two services. `first_call` is an empty prepare right after the driver was found."""

    registration: Path
    info: PluginInfo
    found_in: float
    registrar: RegistrationClient
    service: PluginClient
    first_call: ClaimsAnswer
    notified: Answer[RegistrationStatusResponse]
    recorder: Recorder
    process: Process | None = None

    @property
    def endpoint(self) -> Path:
        """The service socket: where GetInfo names none, the registration socket."""
        return endpoint_of(self.info, self.registration)

    @property
    def version(self) -> str:
        """The version the kubelet would choose."""
        return chosen(self.info)

    @property
    def alive(self) -> bool:
        """Whether its process, where it is known, still runs."""
        return self.process is None or not self.process.ended()

    def connect(self) -> PluginClient:
        """Another connection to its service; close its channel."""
        return PluginClient(Channel(self.endpoint, self.recorder), self.info.name)

    def connect_registrar(self) -> RegistrationClient:
        """Another connection to its registration socket; close its channel."""
        return RegistrationClient(Channel(self.registration, self.recorder))

    def close(self) -> None:
        """Close the connections."""
        self.registrar.channel.close()
        self.service.channel.close()


def endpoint_of(info: PluginInfo, registration: Path) -> Path:
    """Where the service is."""
    return Path(info.endpoint) if info.endpoint else registration


def chosen(info: PluginInfo) -> str:
    """The first advertised version that the kubelet knows; v1 where there is none, so that other checks can go on."""
    return next((each for each in info.supported_versions if each in PLUGIN_VERSIONS), V1)


def look(registry: Path, driver: str, before: Sockets, recorder: Recorder) -> Instance | None:
    """The instance behind a socket that is not as it was `before`; None while there is none."""
    for path, identity in sorted(sockets_in(registry).items()):
        if before.get(path) == identity:
            continue
        found = _ask(Path(path), driver, recorder)
        if found:
            return found
    return None


def _ask(socket: Path, driver: str, recorder: Recorder) -> Instance | None:
    registrar = RegistrationClient(Channel(socket, recorder))
    answer = registrar.get_info(PATIENT)
    info = answer.message
    if info is None or (driver and info.name != driver):
        registrar.channel.close()
        return None
    service = PluginClient(Channel(endpoint_of(info, socket), recorder), info.name)
    first = service.prepare([], chosen(info), PATIENT)
    return Instance(socket, info, answer.seconds, registrar, service, first, registrar.notify(), recorder)


class Waiting:
    """Counts down from `seconds`, in a loop that ends: `while waiting.pause(): …`."""

    def __init__(self, seconds: float) -> None:
        self._ends = time.monotonic() + seconds

    def pause(self, seconds: float = LOOK) -> bool:
        """Sleep a little; False, without sleeping, once the time is over."""
        if time.monotonic() >= self._ends:
            return False
        time.sleep(seconds)
        return True
