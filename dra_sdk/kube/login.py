"""Log in to the API server with the credentials of a source."""

from __future__ import annotations

from typing import Final, Protocol

from dra_sdk.errors import SettingsError
from dra_sdk.kube.http import Server
from dra_sdk.kube.in_cluster import InClusterSession
from dra_sdk.kube.source import Source

DEFAULT_NAMESPACE: Final = "default"


class Session(Protocol):
    """One set of credentials. Safe for threads.

    url: the URL of the API server, without user and password, and without a slash at its end.
    base_path: the path under which its API begins, such as `/k8s/clusters/c-1`; usually empty.
    server: where and how to connect.
    """

    url: str
    base_path: str
    server: Server

    def close(self) -> None:
        """End what a request waits for, such as an exec plugin."""

    def authorization(self) -> str | None:
        """Return the Authorization header, None without a token. SettingsError if it cannot be renewed."""


def log_in(source: Source) -> Session:
    """Read the credentials; SettingsError with their problem. Sends no request to the API server."""
    if source.files:
        from dra_sdk.kube import kubeconfig  # noqa: PLC0415 (0.6 s and 30 MiB)

        return kubeconfig.log_in(source)
    try:
        return InClusterSession(source.account)
    except SettingsError as error:
        raise SettingsError(f"cannot log in with {source}: {error}") from error


def namespace_of(source: Source) -> str:
    """Return the namespace of the context, or of the pod; `default` if it names none. Sends no request.

    SettingsError for files that are no kubeconfig. Source: the namespace that kubectl uses without `-n`.
    """
    if source.files:
        from dra_sdk.kube import kubeconfig  # noqa: PLC0415 (0.6 s and 30 MiB)

        return kubeconfig.namespace_of(source) or DEFAULT_NAMESPACE
    file = source.account / "namespace"
    return file.read_text().strip() if file.exists() else DEFAULT_NAMESPACE
