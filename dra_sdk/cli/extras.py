"""The extra `tools`: the packages that simulate, explain, validate, top, demo and conformance need beyond a node's.

The list of packages is the one that the installed distribution declares in its metadata.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Final

from dra_sdk.errors import SettingsError

DISTRIBUTION: Final = "dra-sdk"
EXTRA: Final = "tools"
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_MARKER: Final = re.compile(rf";.*\bextra\s*==\s*['\"]{EXTRA}['\"]")


def require_tools(
    command: str,
    *,
    requires: Callable[[str], Iterable[str] | None] | None = None,
    version: Callable[[str], str] | None = None,
) -> None:
    """SettingsError with the line to type if a package of the extra is not installed.

    `requires` and `version` are those of importlib.metadata; a test may give others.
    """
    requires, version = requires or metadata.requires, version or metadata.version
    missing = []
    for requirement in requires(DISTRIBUTION) or ():
        name = _NAME.match(requirement)
        if name and _MARKER.search(requirement):
            try:
                version(name.group())
            except metadata.PackageNotFoundError:
                missing.append(name.group())
    if missing:
        raise SettingsError(
            f"{command} needs packages that are not installed ({', '.join(missing)}): "
            f"pip install '{DISTRIBUTION}[{EXTRA}]'"
        )
