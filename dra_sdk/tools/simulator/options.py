"""What a request may say beside its object: resourceVersion and how to match it, and what to do with unknown fields.

Contract: the Kubernetes API concepts page; ValidateListOptions of k8s.io/apimachinery.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from dra_sdk.tools.simulator import statuses
from dra_sdk.tools.simulator.resources import ResourceType

if TYPE_CHECKING:
    from dra_sdk.tools.simulator.routes import Target

_EXACT, _NOT_OLDER = "Exact", "NotOlderThan"
_LIST_OPTIONS = ResourceType("meta.k8s.io", "v1", "listoptions", "ListOptions")
_MATCH, _INITIAL = "resourceVersionMatch", "sendInitialEvents"
_STRICT, _IGNORE = "Strict", "Ignore"


def check_list(target: Target) -> None:
    """`StatusError` 422 for options that a list cannot have."""
    match, version = target.query.get(_MATCH, ""), target.query.get("resourceVersion", "")
    if match and not version:
        raise _forbidden(_MATCH, "is forbidden unless resourceVersion is provided")
    if match and target.query.get("continue"):
        raise _forbidden(_MATCH, "is forbidden when continue is provided")
    if match not in {"", _EXACT, _NOT_OLDER}:
        raise _not_supported(match, (_EXACT, _NOT_OLDER))
    if match == _EXACT and version == "0":
        raise _forbidden(_MATCH, 'Exact is forbidden for resourceVersion "0"')
    if _INITIAL in target.query:
        raise _forbidden(_INITIAL, "is forbidden for list")


def check_watch(target: Target) -> None:
    """`StatusError` 422 for options that a watch cannot have."""
    match = target.query.get(_MATCH, "")
    if _INITIAL in target.query and match != _NOT_OLDER:
        raise _forbidden(_MATCH, f"{_INITIAL} requires setting it to {_NOT_OLDER}")
    if match and _INITIAL not in target.query:
        raise _forbidden(_MATCH, f"is forbidden for watch unless {_INITIAL} is provided")


def check_reached(target: Target, current: int) -> None:
    """`StatusError` 504 where a get or list wants a resourceVersion that is still to come; 0 wants any."""
    wanted = target.number("resourceVersion") or 0
    if wanted > current:
        raise statuses.too_large_version(wanted, current)


def is_exact(target: Target) -> bool:
    """Whether a list wants the objects as they were at its resourceVersion."""
    return target.query.get(_MATCH, "") == _EXACT


class FieldValidation:
    """What a write does about unknown fields: refuses (`Strict`), warns (the default) or says nothing (`Ignore`).

    `headers` are those that the answer carries.
    """

    def __init__(self, mode: str) -> None:
        self.headers: dict[str, str] = {}
        self._mode = mode

    @classmethod
    def of(cls, target: Target) -> Self:
        """As the query parameter fieldValidation says."""
        return cls(target.query.get("fieldValidation", ""))

    def unknown(self, fields: list[str]) -> None:
        """Takes note of unknown fields; `StatusError` 400 if they are not to be there."""
        found = ", ".join(f'unknown field "{field}"' for field in fields)
        if self._mode == _STRICT:
            raise statuses.bad_request(f"strict decoding error: {found}")
        if self._mode != _IGNORE:
            quoted = found.replace('"', '\\"')
            self.headers["Warning"] = f'299 - "{quoted}"'


def _forbidden(field: str, why: str) -> statuses.StatusError:
    return statuses.invalid(_LIST_OPTIONS, "", [(field, "FieldValueForbidden", f"Forbidden: {why}")])


def _not_supported(match: str, known: tuple[str, ...]) -> statuses.StatusError:
    why = f'Unsupported value: "{match}": supported values: {", ".join(known)}'
    return statuses.invalid(_LIST_OPTIONS, "", [(_MATCH, "FieldValueNotSupported", why)])
