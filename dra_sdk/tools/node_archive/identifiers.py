"""Replaces what identifies one machine or one device: MAC addresses, GUIDs, UUIDs, WWNs, serial numbers.

Equal identifiers get equal replacements, so a driver still finds that two files mean the same device. Replacements are
numbered in the order of first appearance and say nothing about the original.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import Final

_FILES: Final = (
    *("serial", "serial_*", "*_serial", "serialno", "wwid", "wwn", "unique_id", "uuid", "nguid", "eui"),
    *("*nqn", "hostid", "phys_switch_id", "phys_port_id", "*asset_tag*", "fru_id", "product_uuid"),
    *("port_name", "node_name", "node_desc", "ifalias"),
)
"""Names of files whose whole content identifies something, or was written by an administrator."""
_HEX: Final = "0-9a-fA-F"
_UUID: Final = re.compile(rf"(?<![{_HEX}])[{_HEX}]{{8}}(?:-[{_HEX}]{{4}}){{3}}-[{_HEX}]{{12}}(?![{_HEX}])")
_UUID_DIGITS: Final = re.compile(rf"(?<![{_HEX}])[{_HEX}]{{32}}(?![{_HEX}])")
_BYTES: Final = re.compile(rf"(?<![{_HEX}:])[{_HEX}]{{2}}(?::[{_HEX}]{{2}}){{5,19}}(?![{_HEX}:])")
"""A MAC address, or the 20 bytes of an InfiniBand address."""
_GUID: Final = re.compile(
    rf"(?<![{_HEX}:])((?:[{_HEX}]{{4}}:){{4}})?([{_HEX}]{{4}}(?::[{_HEX}]{{4}}){{3}})(?![{_HEX}:])"
)
"""A GUID of four groups, or a GID of eight: a prefix and a GUID."""
_LINK_LOCAL: Final = ("fe80:0000:0000:0000:", "0000:0000:0000:0000:")
_NAMED_BY_MAC: Final = re.compile(rf"\benx([{_HEX}]{{12}})\b")
"""A network interface that udev names by its MAC address."""
_LINE: Final = re.compile(
    r"^(?P<label>.*\b(?:serial(?:[ _]?(?:number|no))?|unique_id|hive_id|wwn|wwid)\b[ \t]*[:=]?[ \t]*)"
    r"(?P<value>\S+)[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
"""A line such as `unique_id 1234` of KFD or `Serial : 00000000abcd` of /proc/cpuinfo."""
_NUMBERED_FILES: Final = frozenset({"unique_id"})
"""Files with a number in hexadecimal that other files have in decimal."""
_EMPTY: Final = frozenset({"", "none", "n/a", "unknown", "0x0"})
_SHORTEST: Final = 6
"""Shorter values are replaced only where they are the whole content: elsewhere they may be an ordinary number."""
_FIRST_NUMBER: Final = 0x0D5A_0000_0000_0000


class Identifiers:
    """The replacements of one archive. Show it all files with `learn` before the first call of `replaced`."""

    def __init__(self) -> None:
        self._made_up: dict[str, str] = {}
        self._used: set[str] = set()
        self._learnt: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None

    @property
    def count(self) -> int:
        """The number of different identifiers that were replaced."""
        return len(self._made_up)

    def learn(self, path: str, text: str) -> None:
        """Remember the identifiers that only the name of a file or of a line shows, to find them elsewhere too."""
        content = text.strip()
        if _is_identifier(path):
            self._learn(content, hexadecimal=PurePosixPath(path).name in _NUMBERED_FILES)
        for line in _LINE.finditer(text):
            self._learn(line["value"])

    def replaced(self, text: str, path: str = "") -> str:
        """Return the text with replacements; `path` is the file whose content it is, and empty for a name."""
        content = text.strip()
        if path and _is_identifier(path) and content in self._learnt:
            return text.replace(content, self._learnt[content])
        if path:
            text = _LINE.sub(lambda match: match["label"] + self._learnt.get(match["value"], match["value"]), text)
        if self._learnt:
            text = self._learnt_pattern().sub(lambda match: self._learnt[match[0]], text)
        text = _UUID.sub(self._replacement("00000000-0000-4000-8000-{:012x}"), text)
        text = _UUID_DIGITS.sub(self._replacement("0000000000004000{:016x}"), text)
        text = _BYTES.sub(lambda match: self._bytes(match[0]), text)
        text = _GUID.sub(self._gid, text)
        return _NAMED_BY_MAC.sub(self._interface, text)

    def _learn(self, value: str, *, hexadecimal: bool = False) -> None:
        """Learn one identifier; `hexadecimal` for a number that has other digits elsewhere."""
        if value.lower() in _EMPTY or not value.strip("0:-. \n"):
            return
        self._pattern = None
        if hexadecimal and re.fullmatch(rf"[{_HEX}]+", value):
            made_up = int(self._of(str(int(value, 16)), lambda number: str(_FIRST_NUMBER + number)))
            self._learnt[value] = f"{made_up:0{len(value)}x}"
            self._learnt[str(int(value, 16))] = str(made_up)
        elif value not in self._learnt:
            self._learnt[value] = self._of(value, lambda number: _alike(value, number))

    def _learnt_pattern(self) -> re.Pattern[str]:
        if self._pattern is None:
            values = sorted((value for value in self._learnt if len(value) >= _SHORTEST), key=len, reverse=True)
            choices = "|".join(map(re.escape, values)) or "(?!)"
            self._pattern = re.compile(rf"(?<![0-9A-Za-z])(?:{choices})(?![0-9A-Za-z])")
        return self._pattern

    def _of(self, value: str, make: Callable[[int], str]) -> str:
        """Return the replacement of a value; the values that we made up are kept."""
        if value in self._used:
            return value
        if value not in self._made_up:
            self._made_up[value] = make(len(self._made_up) + 1)
            self._used.add(self._made_up[value])
        return self._made_up[value]

    def _replacement(self, form: str) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            return self._of(match[0].lower(), form.format) if match[0].strip("0-") else match[0]

        return replace

    def _bytes(self, address: str) -> str:
        """Return a MAC address or a longer one, with the locally administered bit; zeros and broadcast stay."""
        if not address.strip("0:") or not address.lower().strip("f:"):
            return address
        digits = len(address.replace(":", "")) - 2
        return self._of(address.lower(), lambda number: _grouped(f"02{number:0{digits}x}", 2))

    def _gid(self, match: re.Match[str]) -> str:
        """Return a GUID, alone or after the prefix of a GID; prefixes of a site are replaced by fd00::."""
        prefix, guid = match[1] or "", match[2]
        if not match[0].strip("0:"):
            return match[0]
        kept = prefix if prefix.lower() in _LINK_LOCAL else "fd00:0000:0000:0000:" if prefix else ""
        if not guid.strip("0:"):
            return kept + guid
        return kept + self._of(guid.lower(), lambda number: _grouped(f"02{number:014x}", 4))

    def _interface(self, match: re.Match[str]) -> str:
        return "enx" + self._bytes(_grouped(match[1], 2)).replace(":", "")


def _grouped(digits: str, size: int) -> str:
    return ":".join(digits[at : at + size] for at in range(0, len(digits), size))


def _is_identifier(path: str) -> bool:
    name = PurePosixPath(path).name.lower()
    return any(fnmatch(name, pattern) for pattern in _FILES)


def _alike(value: str, number: int) -> str:
    """Return a made-up value that looks like the original: digits for digits, otherwise a word."""
    if re.fullmatch(rf"(?:0x)?[{_HEX}]{{{_SHORTEST},}}", value):
        prefix = "0x" if value.startswith("0x") else ""
        width = len(value) - len(prefix)
        return prefix + (f"{number:0{width}d}" if value.isdecimal() else f"{number:0{width}x}")
    return f"made-up-{number}"
