"""Where the credentials for the API server come from: kubeconfig files, or the pod's service account."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_sdk.errors import SettingsError
from dra_sdk.kube.in_cluster import ACCOUNT, HOST

_HOME: Final = Path("~/.kube/config")


@dataclass(frozen=True, slots=True)
class Source:
    """Where credentials come from.

    files: kubeconfig files, which are merged as kubectl does; none for the pod's own service account.
    context: the context to use instead of the files' current one; empty for that one.
    account: the directory with the files of the pod's service account.
    """

    files: tuple[Path, ...] = ()
    context: str = ""
    account: Path = ACCOUNT

    def __str__(self) -> str:
        if not self.files:
            return "the pod's service account"
        named = f", context {self.context}" if self.context else ""
        return f"kubeconfig {self.merged}{named}"

    @property
    def merged(self) -> str:
        """The files as `$KUBECONFIG` names them."""
        return os.pathsep.join(str(file) for file in self.files)


def find_source(kubeconfig: Path | None, context: str = "") -> Source:
    """Return the first that exists of the argument, `$KUBECONFIG`, the pod, `~/.kube/config`; else SettingsError.

    A context is one of a kubeconfig file, so with it the pod's service account does not count.
    """
    if kubeconfig is not None:
        return Source((_readable(kubeconfig, "kubeconfig"),), context)
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    if named:
        present = tuple(path for path in named if path.exists()) or (_readable(named[0], "$KUBECONFIG"),)
        return Source(tuple(_readable(path, "$KUBECONFIG") for path in present), context)
    if os.environ.get(HOST) and not context:
        return Source()
    home = _HOME.expanduser()
    if home.exists():
        return Source((_readable(home, "kubeconfig"),), context)
    raise SettingsError(
        f"no API server to talk to: no kubeconfig was given, $KUBECONFIG is not set, this is not a pod "
        f"(${HOST} is not set) and {home} does not exist"
    )


def _readable(path: Path, what: str) -> Path:
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise SettingsError(f"{what} {path} cannot be read: {error.strerror or error}") from error
