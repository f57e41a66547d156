"""The API server's address and our credentials from kubeconfig files, which the `kubernetes` package reads.

It knows client certificates, tokens, token files, exec plugins, OIDC and proxies. Its import takes 0.6 s and 30 MiB, so
this module is imported for kubeconfig files only.
"""

from __future__ import annotations

import logging
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident
from time import monotonic
from typing import Final
from urllib.parse import urlsplit

from kubernetes import config
from kubernetes.client import Configuration
from yaml import YAMLError

from dra_sdk.errors import SettingsError
from dra_sdk.kube.http import Server
from dra_sdk.kube.login_calls import call, end_plugins
from dra_sdk.kube.proxies import host_and_port, http_proxy, without_user
from dra_sdk.kube.source import Source

_PLUGIN_OUTPUT: Final = re.compile(
    r"(exec: process returned -?\d+\.|exec: plugin api version|Invalid RFC3339 datetime:) .*", re.DOTALL
)
TOKEN_SECONDS: Final = 1.0  # for which a token is used before the client is asked again


class KubeconfigSession:
    """The credentials of a kubeconfig; a `Session`."""

    def __init__(self, configuration: Configuration, source: Source) -> None:
        self.url = without_user(configuration.host).rstrip("/")
        self.base_path = urlsplit(self.url).path
        self.server = _server(configuration, self.url, source)
        self._configuration = configuration
        self._source = source
        self._may_hang = configuration.refresh_api_key_hook is not None
        self._lock = Lock()
        self._known: tuple[float, str | None] = (0.0, None)

    def close(self) -> None:
        """End an exec plugin that a request waits for; the request then fails."""
        if self._may_hang:
            end_plugins()

    def authorization(self) -> str | None:
        """Return the Authorization header, None without a token. Renews an expired token; SettingsError if that fails.

        The client is asked at most once in TOKEN_SECONDS: it renews a token minutes before it expires.
        """
        until, known = self._known
        if monotonic() < until:
            return known
        value = call(self._token, self._source) if self._may_hang else self._token()
        self._known = monotonic() + TOKEN_SECONDS, value
        return value

    def _token(self) -> str | None:
        try:
            with self._lock, _logged_errors() as said:  # the renewal of the client is not safe for threads
                setting = self._configuration.auth_settings().get("BearerToken")
        except (config.ConfigException, OSError) as error:
            raise SettingsError(f"{self._source}: the token cannot be read again: {_public(str(error))}") from error
        if said:
            raise SettingsError(f"{self._source}: the token cannot be renewed: {'; '.join(said)}")
        value = setting["value"] if setting else None
        return value.strip() if value else None


def log_in(source: Source) -> KubeconfigSession:
    """Read the files; SettingsError with their problem. Sends no request to the API server."""
    return KubeconfigSession(call(lambda: _configuration(source), source), source)


def namespace_of(source: Source) -> str:
    """Return the namespace of the context; empty if it names none. SettingsError for files that are no kubeconfig."""
    try:
        contexts, current = config.list_kube_config_contexts(source.merged)  # type: ignore[no-untyped-call]
        named = {str(context["name"]): context["context"] or {} for context in contexts}
        chosen = named[source.context] if source.context in named else current["context"]
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise SettingsError(f"cannot read the contexts of {source}: {error}") from error
    if source.context and source.context not in named:
        raise SettingsError(f"{source}: there is no such context; contexts are: {', '.join(sorted(named))}")
    return str((chosen or {}).get("namespace") or "")


def _configuration(source: Source) -> Configuration:
    configuration = Configuration(host="")
    try:
        with _logged_errors() as said:
            config.load_kube_config(  # type: ignore[no-untyped-call]
                source.merged, source.context or None, client_configuration=configuration, persist_config=False
            )
    except (config.ConfigException, YAMLError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        # The client does not check the content of YAML files, so another kind of file can raise any error.
        other = not isinstance(error, config.ConfigException | OSError)
        what = "it is not a kubeconfig: " if other else ""
        text = _public(f"{type(error).__name__}: {error}")
        raise SettingsError(f"cannot log in with {source}: {what}{text}") from error
    if said:  # otherwise every request would be anonymous
        raise SettingsError(f"cannot log in with {source}: {'; '.join(said)}")
    if not configuration.host:
        raise SettingsError(f"cannot log in with {source}: its cluster has no `server`")
    return configuration


@contextmanager
def _logged_errors() -> Iterator[list[str]]:
    """Collect errors that the client logs to the root logger but does not raise, such as that of an exec plugin.

    They do not reach the log: they may hold what a plugin wrote.
    """
    errors: list[str] = []
    thread = get_ident()

    def collect(record: logging.LogRecord) -> bool:
        if record.thread != thread:
            return True
        errors.append(_public(record.getMessage()))
        return False

    logger = logging.getLogger()
    logger.addFilter(collect)
    try:
        yield errors
    finally:
        logger.removeFilter(collect)


def _public(text: str) -> str:
    """Return an error of the client in one line, without what an exec plugin wrote: it may be a secret.

    Errors of this module become events of pods and lines of logs.
    """
    return _PLUGIN_OUTPUT.sub(r"\1 (what it wrote is not shown here)", " ".join(text.split())).replace(". (", " (")


def _server(configuration: Configuration, url: str, source: Source) -> Server:
    place = host_and_port(url)
    if place is None:
        raise SettingsError(f"cannot log in with {source}: server {without_user(url)!r} is not an http or https URL")
    tls = _tls(configuration, source) if url.lower().startswith("https:") else None
    try:
        proxy = http_proxy(url, configuration.proxy or "", configuration.no_proxy or "")
    except SettingsError as error:
        raise SettingsError(f"cannot log in with {source}: {error}") from error
    return Server(*place, tls, configuration.tls_server_name, proxy, configuration.proxy_headers)


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
