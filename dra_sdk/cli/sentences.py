"""What commands say on stderr, and YAML for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import yaml

from dra_sdk.cli.files import printable
from dra_sdk.errors import DraError, InvalidObjectError

_MOST: Final = 25
"""Problems of one object that are told; a driver with a thousand devices has each a thousand times."""


def lines(error: DraError) -> list[str]:
    """An error as lines, one for each problem of an object."""
    if not isinstance(error, InvalidObjectError):
        return [printable(f"dra-sdk: {error}")]
    told = list(dict.fromkeys(error.problems))
    found = [printable(f"dra-sdk: {error.subject}: {problem}") for problem in told[:_MOST]]
    return found if len(told) <= _MOST else [*found, f"dra-sdk: {error.subject}: and {len(told) - _MOST} more problems"]


def yaml_text(documents: Iterable[Any]) -> str:
    """YAML documents without references, which Python shares and no reader wants."""
    return yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, allow_unicode=True, width=1000)


class _Plain(yaml.SafeDumper):
    """As the safe one, without anchors."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (its signature)
        """Always."""
        return True
