"""A driver's settings on a node: environment variables with one prefix, each with a default, and a table of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dra_sdk.errors import DraError, SettingsError

_TRUE: Final = frozenset({"1", "true", "on", "yes"})
_FALSE: Final = frozenset({"0", "false", "off", "no"})
_SERVICE: Final = re.compile(
    r"_SERVICE_HOST|_SERVICE_PORT(_[A-Z0-9_]+)?|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?"
)
"""How variables end that the kubelet sets for each Service of a namespace, unless `enableServiceLinks` is false."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    field: the field of the driver's settings; with the prefix and in upper case it is the variable.
    parse: reads the text of the variable; raises ValueError or DraError with what it must be.
    default: the default as the documentation shows it.
    help: what the setting means.
    """

    field: str
    parse: Callable[[str], object]
    default: str
    help: str


class SettingsTable:
    """All settings of a driver. `prefix` is what their variables begin with, such as `DRA_GPU_`."""

    def __init__(self, prefix: str, settings: Sequence[Setting]) -> None:
        self._prefix = prefix
        self._settings = {f"{prefix}{each.field.upper()}": each for each in settings}

    def read(self, environment: Mapping[str, str]) -> dict[str, Any]:
        """The settings that the environment has, by field; an empty variable counts as absent.

        Raises SettingsError for a variable that is unknown or has an unusable value. Variables of a Service are not
        settings: a Service named like the driver would otherwise keep it from starting.
        """
        mine = [each for each in environment if each.startswith(self._prefix) and each not in self._settings]
        unknown = sorted(each for each in mine if not _is_of_service(each))
        if unknown:
            raise SettingsError(f"unknown environment variable {unknown[0]}: there are {', '.join(self._settings)}")
        present = {name: text for name in self._settings if (text := environment.get(name))}
        return {self._settings[name].field: self._parse(name, text) for name, text in present.items()}

    def _parse(self, variable: str, text: str) -> object:
        try:
            return self._settings[variable].parse(text)
        except (ValueError, DraError) as error:
            raise SettingsError(f"environment variable {variable}={text!r}: {error}") from None

    def markdown(self) -> str:
        """The table for a README."""
        rows = [f"| `{name}` | {each.default} | {each.help} |" for name, each in self._settings.items()]
        return "\n".join(["| variable | default | meaning |", "|---|---|---|", *rows]) + "\n"


def _is_of_service(variable: str) -> bool:
    return any(match.end() == len(variable) for match in _SERVICE.finditer(variable))


def parse_path(text: str) -> str:
    """An absolute path of the host, without a slash at the end."""
    if not text.startswith("/"):
        raise ValueError("must be an absolute path on the host")
    return "/" + text.strip("/")


def parse_switch(text: str) -> bool:
    """`true` or `false`, also as `1`, `on`, `yes` and their opposites, in any case."""
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError("must be true or false")


def parse_seconds(longest: float, reason: str) -> Callable[[str], float]:
    """Reads a number of seconds above 0 and at most `longest`; `reason` says why not more."""

    def parse(text: str) -> float:
        value = float(text)
        if not 0 < value <= longest:
            raise ValueError(f"must be above 0 and at most {longest:.0f} seconds: {reason}")
        return value

    return parse


def parse_choice(*choices: str) -> Callable[[str], str]:
    """Reads one of these words."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"must be {' or '.join(choices)}")
        return text

    return parse
