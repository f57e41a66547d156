"""The packages that a command needs beyond those of a node: each command names its own."""

from __future__ import annotations

from importlib.util import find_spec

from dra_sdk.errors import SettingsError


def require_package(command: str, package: str) -> None:
    """Raise SettingsError with the line to type if a package, which is called like its module, is not installed."""
    try:
        missing = find_spec(package) is None
    except ValueError:  # `sys.modules` has None for it
        missing = True
    if missing:
        raise SettingsError(f"{command} needs the package {package}, which is not installed: pip install {package}")
