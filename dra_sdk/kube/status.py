"""Error answers of the API server as errors of `dra_sdk.errors`.

Source: meta/v1 Status (code, reason, message, details.retryAfterSeconds) and the Retry-After header.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Any, Final

from dra_sdk.errors import ApiError, ConflictError, GoneError, InvalidError, NotFoundError

_KINDS: Final[dict[int, type[ApiError]]] = {
    404: NotFoundError,
    409: ConflictError,
    410: GoneError,
    422: InvalidError,
}
_BODY_LIMIT: Final = 500
_LONGEST_WAIT: Final = 86400.0  # seconds; a longer Retry-After is cut to this


def error_of(action: str, status: int, body: bytes, headers: Mapping[str, str], hint: str = "") -> ApiError:
    """Return the error of an answer with an error status; `action` is verb and object, `hint` is for 401 and 403."""
    said = _json(body)
    if said is None:
        text = body[:_BODY_LIMIT].decode("utf-8", "replace").strip()
        said = {"message": text} if text else {}
    return _error(action, status, said, retry_after=_seconds(headers), hint=hint)


def error_of_event(action: str, status: Any) -> ApiError:
    """Return the error for an ERROR event of a watch, whose object is a meta/v1 Status."""
    said = status if isinstance(status, Mapping) else {"message": f"{status!r:.80}"}
    code = said.get("code")
    return _error(action, code if isinstance(code, int) else 0, said)


def _error(
    action: str, status: int, said: Mapping[str, Any], *, retry_after: float | None = None, hint: str = ""
) -> ApiError:
    reason = str(said.get("reason") or _phrase(status))
    message = f"{action}: the API server answered {status} {reason}"
    if said.get("message"):
        message += f": {said['message']}"
    if hint and status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        message += f" ({hint})"
    details = said.get("details")
    asked = details.get("retryAfterSeconds") if isinstance(details, Mapping) else None
    if retry_after is None and isinstance(asked, int) and asked > 0:
        retry_after = float(min(asked, _LONGEST_WAIT))
    kind = _KINDS.get(status, ApiError)
    return kind(message, status=status, reason=reason, retry_after=retry_after)


def _json(body: bytes) -> Mapping[str, Any] | None:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "error"


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Return Retry-After (RFC 9110) in seconds: it is a number, or a date relative to the answer's own Date."""
    value = headers.get("retry-after")
    if value is None:
        return None
    if value.strip().isdecimal():
        return min(float(value), _LONGEST_WAIT)
    try:
        then = parsedate_to_datetime(value)
        return min(max(0.0, (then - parsedate_to_datetime(headers["date"])).total_seconds()), _LONGEST_WAIT)
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
