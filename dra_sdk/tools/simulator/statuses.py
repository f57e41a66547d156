"""Errors of the API server: one exception, whose `status` is the `meta/v1` Status object that clients get.

The functions build the errors that the server itself raises. Tests and fault rules use them too, so that clients cannot
tell an injected error from a real one. Contract: k8s.io/apimachinery pkg/api/errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dra_sdk.errors import DraError
from dra_sdk.texts import counted
from dra_sdk.tools.simulator.resources import ResourceType

_STATUS: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}}
"""What every Status object has."""
MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class StatusError(DraError):
    """An answer of the API server other than success.

    code: the HTTP status code.
    reason: the machine-readable reason, such as NotFound.
    message: the sentence for people.
    status: all of it, as a Status object.
    """

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        given = {"message": message, "reason": reason, "details": details}
        self.status = {
            **_STATUS,
            "status": "Failure",
            **{key: value for key, value in given.items() if value},
            "code": code,
        }

    @property
    def retry_after(self) -> int | None:
        """Seconds for the `Retry-After` header, None if the client is not asked to wait."""
        seconds = self.status.get("details", {}).get("retryAfterSeconds")
        return int(seconds) if seconds else None


def _details(resource: ResourceType, name: str, **more: Any) -> dict[str, Any]:
    details: dict[str, Any] = {"name": name, "group": resource.group, "kind": resource.plural, **more}
    return {key: value for key, value in details.items() if value}


def deleted(resource: ResourceType, name: str, uid: str) -> dict[str, Any]:
    """Return the Status that answers a delete."""
    return {**_STATUS, "status": "Success", "details": _details(resource, name, uid=uid)}


def not_found(resource: ResourceType, name: str) -> StatusError:
    """Return 404: there is no such object."""
    return StatusError(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def already_exists(resource: ResourceType, name: str) -> StatusError:
    """Return 409 AlreadyExists: an object of this name exists."""
    return StatusError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', _details(resource, name))


def conflict(resource: ResourceType, name: str, why: str = MODIFIED) -> StatusError:
    """Return 409 Conflict: a stale resourceVersion or a failed precondition."""
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(resource, name))


def apply_conflict(causes: Sequence[tuple[str, str]], version: str) -> StatusError:
    """Return 409 Conflict of a server-side apply; `causes` are (manager, field path) pairs."""
    texts = [f'conflict with "{manager}" using {version}' for manager, _ in causes]
    lines = [f"{text}: {path}" for text, (_, path) in zip(texts, causes, strict=True)]
    head = f"Apply failed with {counted(len(causes), 'conflict')}: "
    message = head + (lines[0] if len(lines) == 1 else "\n- ".join(["conflicts:", *lines]))
    details = {
        "causes": [
            {"reason": "FieldManagerConflict", "message": text, "field": path}
            for text, (_, path) in zip(texts, causes, strict=True)
        ]
    }
    return StatusError(409, "Conflict", message, details)


def invalid(resource: ResourceType, name: str, causes: Sequence[tuple[str, str, str]]) -> StatusError:
    """Return 422 Invalid; `causes` are (field, type, message), as ("spec.devices", "FieldValueTooMany", "must …")."""
    shown = [f"{field}: {message}" for field, _, message in causes]
    body = shown[0] if len(shown) == 1 else "[" + ", ".join(shown) + "]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details: dict[str, Any] = {"name": name, "group": resource.group, "kind": resource.kind}
    details["causes"] = [{"reason": kind_of, "message": message, "field": field} for field, kind_of, message in causes]
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {body}', {k: v for k, v in details.items() if v})


def forbidden(resource: ResourceType, name: str, why: str) -> StatusError:
    """Return 403: the caller may not do this."""
    return StatusError(403, "Forbidden", f'{resource.qualified} "{name}" is forbidden: {why}', _details(resource, name))


def unauthorized() -> StatusError:
    """Return 401: the bearer token is missing or wrong."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def bad_request(message: str) -> StatusError:
    """Return 400: the request is malformed."""
    return StatusError(400, "BadRequest", message)


def not_decoded(resource: ResourceType, why: str) -> StatusError:
    """Return 400: a value of the object has another type than the server's."""
    version = f'in version "{resource.version}"'
    return bad_request(f"{resource.kind} {version} cannot be handled as a {resource.kind}: {why}")


def expired(message: str) -> StatusError:
    """Return 410 Gone: the resourceVersion or continue token is too old."""
    return StatusError(410, "Expired", message)


def method_not_allowed(resource: ResourceType, action: str) -> StatusError:
    """Return 405: the resource has no such verb."""
    message = f'{action} is not supported on resources of kind "{resource.qualified}"'
    return StatusError(405, "MethodNotAllowed", message, _details(resource, ""))


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    """Return 415: the server does not read bodies of this media type."""
    message = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return StatusError(415, "UnsupportedMediaType", message)


def too_large(limit: int) -> StatusError:
    """Return 413: the body has more than `limit` bytes."""
    message = f"Request entity too large: limit is {limit}"
    return StatusError(413, "RequestEntityTooLarge", message)


def too_many_requests(retry_after: int = 1) -> StatusError:
    """Return 429 with a `Retry-After` in seconds, as API priority and fairness answers under load."""
    message = "Too many requests, please try again later."
    return StatusError(429, "TooManyRequests", message, {"retryAfterSeconds": retry_after})


def internal_error(why: str) -> StatusError:
    """Return 500: the server failed."""
    return StatusError(500, "InternalError", f"Internal error occurred: {why}", {"causes": [{"message": why}]})


def unavailable(why: str = "the server is currently unable to handle the request") -> StatusError:
    """Return 503: the server or its etcd is down."""
    return StatusError(503, "ServiceUnavailable", why)


def too_large_version(wanted: int, current: int) -> StatusError:
    """Return 504: a get or list asked for a resourceVersion that the server has not reached."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    return StatusError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})
