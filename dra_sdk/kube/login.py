"""Where the API server is and who we are there: a kubeconfig file, or the pod's service account.

The `kubernetes` client reads both: client certificates, tokens, token files, exec plugins, OIDC, proxies. Its import
costs 0.1 to 0.6 s and 14 to 36 MiB, so it happens inside `log_in`, when a client is first asked for.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from dra_sdk.errors import SettingsError

if TYPE_CHECKING:
    from kubernetes.client import Configuration
    from urllib3 import HTTPConnectionPool, PoolManager

_HOME: Final = Path("~/.kube/config")
_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"


@dataclass(frozen=True, slots=True)
class Source:
    """Where credentials come from: kubeconfig files, or none for the pod's own service account."""

    files: tuple[Path, ...] = ()

    def __str__(self) -> str:
        if not self.files:
            return "the pod's service account"
        return "kubeconfig " + os.pathsep.join(str(file) for file in self.files)


class Session:
    """One set of credentials and its pool of connections. Thread-safe."""

    def __init__(self, configuration: Configuration) -> None:
        from kubernetes.client.rest import RESTClientObject  # noqa: PLC0415 (lazy on purpose)

        self.host = configuration.host.rstrip("/")
        self.pool: PoolManager = RESTClientObject(configuration).pool_manager
        self._target: HTTPConnectionPool | None = None
        self._configuration = configuration
        self._lock = Lock()

    def authorization(self) -> str | None:
        """The Authorization header; an expired token is read or fetched again first, SettingsError if that fails."""
        try:
            with self._lock:  # the client's own refresh is not thread-safe
                setting = self._configuration.auth_settings().get("BearerToken")
        except (_config_error(), OSError) as error:
            raise SettingsError(f"the token of the API server cannot be read again: {error}") from error
        value = setting["value"] if setting else None
        return value.strip() if value else None

    def target(self) -> HTTPConnectionPool | None:
        """The server's own connections, which spares each request to look them up; None behind a proxy."""
        if self._target is None and self.pool.proxy is None:
            self._target = self.pool.connection_from_url(self.host)
        return self._target

    def close(self) -> None:
        """Close the idle connections; a later request opens a new one."""
        target, self._target = self._target, None
        if target is not None:
            target.close()
        self.pool.clear()


def _config_error() -> type[Exception]:
    from kubernetes.config import ConfigException  # noqa: PLC0415 (lazy on purpose)

    found: type[Exception] = ConfigException
    return found


def find(kubeconfig: Path | None) -> Source:
    """Decide where to log in: the argument, `$KUBECONFIG`, the pod, `~/.kube/config`; SettingsError without any."""
    if kubeconfig is not None:
        return Source((_readable(kubeconfig, "kubeconfig"),))
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if named:
        present = tuple(path for path in named if path.exists()) or (_readable(named[0], "$KUBECONFIG"),)
        return Source(tuple(_readable(path, "$KUBECONFIG") for path in present))
    if os.environ.get(_IN_CLUSTER):
        return Source()
    home = _HOME.expanduser()
    if home.exists():
        return Source((_readable(home, "kubeconfig"),))
    raise SettingsError(
        f"no API server to talk to: no kubeconfig was given, $KUBECONFIG is not set, this is no pod (${_IN_CLUSTER} is "
        f"not set) and {home} does not exist"
    )


def log_in(source: Source) -> Session:
    """Read the credentials and set up a session; SettingsError says what is wrong with them. Makes no request."""
    from kubernetes import config  # noqa: PLC0415 (lazy on purpose)
    from kubernetes.client import Configuration  # noqa: PLC0415
    from yaml import YAMLError  # noqa: PLC0415

    configuration = Configuration(host="")
    configuration.connection_pool_maxsize = 8
    configuration.socket_options = _keepalive()
    try:
        if source.files:
            files = os.pathsep.join(str(file) for file in source.files)
            config.load_kube_config(files, client_configuration=configuration, persist_config=False)  # type: ignore[no-untyped-call]
        else:
            config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    except (config.ConfigException, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        # The client takes whatever YAML gives it, so a file of another kind shows as any error at all.
        other = not isinstance(error, config.ConfigException | OSError)
        what = "it is no kubeconfig: " if other and source.files else ""
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise SettingsError(f"cannot log in with {source}: {what}{said}") from error
    if not configuration.host:
        raise SettingsError(f"cannot log in with {source}: its cluster has no `server`")
    return Session(configuration)


def _keepalive() -> list[tuple[int, int, int]]:
    """Notice a dead peer within about 75 s, so that an idle watch does not wait for ever."""
    return [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    ]


def _readable(path: Path, what: str) -> Path:
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise SettingsError(f"{what} {path} cannot be read: {error.strerror or error}") from error
