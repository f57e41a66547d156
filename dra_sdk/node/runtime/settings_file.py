"""Settings from a YAML file: one mapping, keys as in the table (`kubeletDir: /var/lib/kubelet`).

Values are taken as they are written, so that `off` is no bool and a node called 007 keeps its name.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

import yaml

from dra_sdk.errors import SettingsError

_NOTHING: Final = ("", "~", "null")


def read_settings_file(path: Path, known: Collection[str]) -> dict[str, str]:
    """The values by key, as text; SettingsError names the file and the key or line that is wrong."""
    try:
        found = yaml.load(path.read_bytes(), yaml.BaseLoader)  # noqa: S506 (it makes text, lists and mappings only)
    except OSError as error:
        raise SettingsError(f"cannot read settings file {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"settings file {path} is no YAML: {_problem(error)}") from error
    if not found:
        return {}
    if not isinstance(found, dict):
        raise SettingsError(f"settings file {path} must hold a mapping of settings, not {type(found).__name__}")
    for key, value in found.items():
        if key not in known:
            raise SettingsError(f"settings file {path}: unknown setting {key!r}; known are {', '.join(sorted(known))}")
        if not isinstance(value, str):
            raise SettingsError(f"settings file {path}: {key} must be text or a number, is {value!r}")
    return {key: value for key, value in found.items() if value not in _NOTHING}


def _problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).replace('in "<byte string>", ', "").split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {getattr(error, 'problem', None) or error}"
