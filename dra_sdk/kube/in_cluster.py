"""The API server as a pod reaches it: its address from the environment, CA and token from the service account's files.

The kubelet replaces the token before it expires. So it is read again every minute, as client-go does; after a 401 the
transport logs in again, which reads the CA too. Source: KEP-1205; InClusterConfig of client-go.
"""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path
from time import monotonic
from typing import Final

from dra_sdk.errors import SettingsError
from dra_sdk.kube.http import Server
from dra_sdk.kube.proxies import environment_proxy

HOST: Final = "KUBERNETES_SERVICE_HOST"
PORT: Final = "KUBERNETES_SERVICE_PORT"
ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS: Final = 60.0  # for which a token is used before its file is read again
_LAST_PORT: Final = 65535


class InClusterSession:
    """A `Session` with the files in `account`. SettingsError names the file or the variable that is wrong."""

    def __init__(self, account: Path = ACCOUNT) -> None:
        host, port = _host(os.environ.get(HOST, "")), _port(os.environ.get(PORT, ""))
        self.url, self.base_path = f"https://{Server(host, port).address}", ""
        self.server = Server(host, port, _tls(account / "ca.crt"), proxy=environment_proxy(self.url))
        self._file = account / "token"
        self._known = monotonic() + TOKEN_SECONDS, _bearer(self._file)

    def close(self) -> None:
        """Do nothing: no request waits for files."""

    def authorization(self) -> str:
        """Return the Authorization header. While its file cannot be read, the last token stays."""
        until, known = self._known
        if monotonic() >= until:
            try:
                known = _bearer(self._file)
            except SettingsError as error:
                logging.getLogger(__name__).warning("%s; the token that was read before is used", error)
            self._known = monotonic() + TOKEN_SECONDS, known
        return known


def _host(text: str) -> str:
    if not text:
        raise SettingsError(f"{HOST} is not set: this is no pod, or a pod without the variables of its cluster")
    if set(text) & set("[]/ "):
        raise SettingsError(f"{HOST} must be a name or an address without brackets, is {text!r}")
    return text


def _port(text: str) -> int:
    port = int(text) if text.isascii() and text.isdecimal() and len(text) <= len(str(_LAST_PORT)) else 0
    if not 0 < port <= _LAST_PORT:
        raise SettingsError(f"{PORT} must be a port from 1 to {_LAST_PORT}, is {text!r}")
    return port


def _tls(file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(file))
    except OSError as error:
        reason = "holds no certificate" if isinstance(error, ssl.SSLError) else f"cannot be read: {error.strerror}"
        raise SettingsError(f"{file}, the CA of the API server, {reason}") from error


def _bearer(file: Path) -> str:
    try:
        words = file.read_text(encoding="ascii").split()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not ASCII text"
        raise SettingsError(f"{file}, the service account's token, cannot be read: {reason}") from error
    if len(words) != 1:
        raise SettingsError(f"{file}, the service account's token, {'has several words' if words else 'is empty'}")
    return f"Bearer {words[0]}"
