"""The API server's address and our credentials: from kubeconfig files, or from the pod's service account.

The `kubernetes` client reads both: client certificates, tokens, token files, exec plugins, OIDC, proxies. Its import
takes 0.6 s and 30 MiB, so `log_in` imports it.
"""

from __future__ import annotations

import logging
import os
import queue
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from dra_sdk.errors import SettingsError
from dra_sdk.kube.http import Server

if TYPE_CHECKING:
    from kubernetes.client import Configuration

T = TypeVar("T")
PLUGIN_SECONDS: Final = 20.0  # that an exec plugin or an OIDC provider may take
TOKEN_SECONDS: Final = 1.0  # for which a token is used before the client is asked again
DEFAULT_NAMESPACE: Final = "default"
_HOME: Final = Path("~/.kube/config")
_POD_NAMESPACE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_IN_CLUSTER: Final = "KUBERNETES_SERVICE_HOST"
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Source:
    """Where credentials come from.

    files: kubeconfig files, which are merged as kubectl does; none for the pod's own service account.
    context: the context to use instead of the files' current one; empty for that one.
    """

    files: tuple[Path, ...] = ()
    context: str = ""

    def __str__(self) -> str:
        if not self.files:
            return "the pod's service account"
        named = f", context {self.context}" if self.context else ""
        return f"kubeconfig {self.merged}{named}"

    @property
    def merged(self) -> str:
        """The files as `$KUBECONFIG` names them."""
        return os.pathsep.join(str(file) for file in self.files)


class Session:
    """One set of credentials. Safe for threads.

    url: the URL of the API server, without a slash at its end.
    base_path: the path under which its API begins, such as `/k8s/clusters/c-1`; usually empty.
    server: where and how to connect.
    """

    def __init__(self, configuration: Configuration, source: Source) -> None:
        self.url = configuration.host.rstrip("/")
        self.base_path = urlsplit(self.url).path
        self.server = _server(configuration, self.url, source)
        self._configuration = configuration
        self._source = source
        self._may_hang = bool(source.files) and configuration.refresh_api_key_hook is not None
        self._lock = Lock()
        self._known: tuple[float, str | None] = (0.0, None)

    def authorization(self) -> str | None:
        """The Authorization header, None without a token. Renews an expired token; SettingsError if that fails.

        The client is asked at most once in TOKEN_SECONDS: it renews a token minutes before it expires.
        """
        until, known = self._known
        if monotonic() < until:
            return known
        found = (
            _in_time(self._token, f"{self._source}: the exec plugin or OIDC provider")
            if self._may_hang
            else self._token()
        )
        self._known = monotonic() + TOKEN_SECONDS, found
        return found

    def _token(self) -> str | None:
        from kubernetes.config import ConfigException  # noqa: PLC0415 (slow to import)

        try:
            with self._lock, _logged_errors() as said:  # the renewal of the client is not safe for threads
                setting = self._configuration.auth_settings().get("BearerToken")
        except (ConfigException, OSError) as error:
            raise SettingsError(f"{self._source}: the token cannot be read again: {error}") from error
        if said:
            raise SettingsError(f"{self._source}: the token cannot be renewed: {'; '.join(said)}")
        value = setting["value"] if setting else None
        return value.strip() if value else None


def find_source(kubeconfig: Path | None, context: str = "") -> Source:
    """The first that exists of: the argument, `$KUBECONFIG`, the pod, `~/.kube/config`. SettingsError without any.

    A context is one of a kubeconfig file, so with it the pod's service account does not count.
    """
    if kubeconfig is not None:
        return Source((_readable(kubeconfig, "kubeconfig"),), context)
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if named:
        present = tuple(path for path in named if path.exists()) or (_readable(named[0], "$KUBECONFIG"),)
        return Source(tuple(_readable(path, "$KUBECONFIG") for path in present), context)
    if os.environ.get(_IN_CLUSTER) and not context:
        return Source()
    home = _HOME.expanduser()
    if home.exists():
        return Source((_readable(home, "kubeconfig"),), context)
    raise SettingsError(
        f"no API server to talk to: no kubeconfig was given, $KUBECONFIG is not set, this is not a pod "
        f"(${_IN_CLUSTER} is not set) and {home} does not exist"
    )


def log_in(source: Source) -> Session:
    """Read the credentials; SettingsError with their problem. Sends no request to the API server."""
    if not source.files:
        return Session(_configuration(source), source)
    import_module("kubernetes.config")  # on a slow node this takes longer than a plugin may
    configuration = _in_time(lambda: _configuration(source), f"{source}: the exec plugin or OIDC provider")
    return Session(configuration, source)


def namespace_of(source: Source) -> str:
    """The namespace of the context, or of the pod; `default` if it names none. Sends no request.

    SettingsError for files that are no kubeconfig. Source: the namespace that kubectl uses without `-n`.
    """
    if not source.files:
        return _POD_NAMESPACE.read_text().strip() if _POD_NAMESPACE.exists() else DEFAULT_NAMESPACE
    from kubernetes import config  # noqa: PLC0415 (slow to import)

    try:
        contexts, current = config.list_kube_config_contexts(source.merged)  # type: ignore[no-untyped-call]
        named = {str(each["name"]): each["context"] or {} for each in contexts}
        chosen = named[source.context] if source.context in named else current["context"]
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise SettingsError(f"cannot read the contexts of {source}: {error}") from error
    if source.context and source.context not in named:
        raise SettingsError(f"{source}: there is no such context; contexts are: {', '.join(sorted(named))}")
    return str((chosen or {}).get("namespace") or DEFAULT_NAMESPACE)


def _configuration(source: Source) -> Configuration:
    from kubernetes import config  # noqa: PLC0415 (slow to import)
    from kubernetes.client import Configuration  # noqa: PLC0415
    from yaml import YAMLError  # noqa: PLC0415

    found = Configuration(host="")
    try:
        with _logged_errors() as said:
            if source.files:
                config.load_kube_config(  # type: ignore[no-untyped-call]
                    source.merged, source.context or None, client_configuration=found, persist_config=False
                )
            else:
                config.load_incluster_config(client_configuration=found)  # type: ignore[no-untyped-call]
    except (config.ConfigException, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        # The client does not check the content of YAML files, so another kind of file can raise any error.
        other = not isinstance(error, config.ConfigException | OSError)
        what = "it is not a kubeconfig: " if other and source.files else ""
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise SettingsError(f"cannot log in with {source}: {what}{text}") from error
    if said:  # otherwise every request would be anonymous
        raise SettingsError(f"cannot log in with {source}: {'; '.join(said)}")
    if not found.host:
        raise SettingsError(f"cannot log in with {source}: its cluster has no `server`")
    return found


@contextmanager
def _logged_errors() -> Iterator[list[str]]:
    """Collects errors that the client logs to the root logger but does not raise, such as that of an exec plugin."""

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.name == "root":
                said.append(" ".join(record.getMessage().split()))

    said: list[str] = []
    collector = Collector(logging.ERROR)
    logging.getLogger().addHandler(collector)
    try:
        yield said
    finally:
        logging.getLogger().removeHandler(collector)


def _in_time(function: Callable[[], T], what: str) -> T:
    """Call a function that may hang, in its own thread. SettingsError after PLUGIN_SECONDS; the thread continues."""
    outcome: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put((function(), None))
        except BaseException as error:  # noqa: BLE001 (it is raised below, in the thread that waits)
            outcome.put((None, error))

    Thread(target=run, name="login", daemon=True).start()
    try:
        value, error = outcome.get(timeout=PLUGIN_SECONDS)
    except queue.Empty:
        raise SettingsError(f"{what} did not answer within {PLUGIN_SECONDS:.0f} s") from None
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # None only where T has it


def _server(configuration: Configuration, url: str, source: Source) -> Server:
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise SettingsError(f"cannot log in with {source}: server {url!r} is not an http or https URL")
    tls = _tls(configuration, source) if parts.scheme == "https" else None
    return Server(
        parts.hostname,
        parts.port or _PORTS[parts.scheme],
        tls,
        configuration.tls_server_name,
        _proxy(configuration, url, source),
        configuration.proxy_headers,
    )


def _tls(configuration: Configuration, source: Source) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=configuration.ssl_ca_cert, cadata=configuration.ca_cert_data)
        if not configuration.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif configuration.assert_hostname is False:
            context.check_hostname = False
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except (OSError, ValueError) as error:
        raise SettingsError(f"cannot log in with {source}: its certificates cannot be used: {error}") from error
    return context


def _proxy(configuration: Configuration, url: str, source: Source) -> tuple[str, int] | None:
    from kubernetes.client.rest import should_bypass_proxies  # noqa: PLC0415 (slow to import)

    if not configuration.proxy or should_bypass_proxies(url, configuration.no_proxy or ""):
        return None
    parts = urlsplit(configuration.proxy)
    if parts.scheme != "http" or not parts.hostname:
        raise SettingsError(f"cannot log in with {source}: proxy {configuration.proxy!r} is not an http:// URL")
    return parts.hostname, parts.port or _PORTS["http"]


def _readable(path: Path, what: str) -> Path:
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise SettingsError(f"{what} {path} cannot be read: {error.strerror or error}") from error
