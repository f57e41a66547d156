"""Settings from a YAML file: one mapping, keys as in the table (`kubeletDir: /var/lib/kubelet`)."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import yaml

from dra_sdk.errors import SettingsError


def read_settings_file(path: Path, known: Collection[str]) -> dict[str, str]:
    """The values by key, as text; SettingsError names the file and the key or line that is wrong."""
    try:
        found = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"cannot read settings file {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"settings file {path} is no YAML: {' '.join(str(error).split())}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise SettingsError(f"settings file {path} must hold a mapping of settings, not {type(found).__name__}")
    for key, value in found.items():
        if key not in known:
            raise SettingsError(f"settings file {path}: unknown setting {key!r}; known are {', '.join(sorted(known))}")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise SettingsError(f"settings file {path}: {key} must be text or a number, is {value!r}")
    return {key: str(value) for key, value in found.items()}
