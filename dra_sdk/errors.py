"""Every error that dra_sdk raises on purpose, in one tree.

```
DraError
├── DriverLoadError       a driver cannot be found, imported or used
├── HookError             a hook raised, or returned an invalid value
├── SettingsError         a flag, an environment variable or a path of the process is unusable
├── InvalidObjectError    an object breaks a limit of its API (carries every problem found)
├── ClaimError            this claim cannot be prepared; other claims are not affected
│   ├── ConfigError       its opaque configuration is wrong
│   ├── DeviceHeldError   another claim holds one of its devices
│   ├── NotNeededError    for authors: what a step of an undo would undo no longer exists
│   ├── PermanentError    for authors: a retry is useless until something changes
│   └── RetriableError    for authors: the kubelet's next attempt may succeed
├── StateError            a file under the plugin data directory cannot be read or trusted
├── HardwareError         a file of the host's /sys, /proc or /dev is missing or has unexpected content
├── NriError              the container runtime's NRI socket cannot be used, or a peer breaks the protocol
└── ApiError              the API server answered with an error status
    ├── NotFoundError     404
    ├── ConflictError     409
    ├── GoneError         410
    ├── InvalidError      422
    └── UnreachableError  no answer at all
```

The kubelet sees `str(error)` in the pod's events, so each message names the object it is about.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from traceback import walk_tb
from typing import ClassVar, Final

from dra_sdk.texts import printable

_BUSY: Final = frozenset({429, 500, 502, 503, 504})
_FORBIDDEN: Final = 403
_ROLES_NOT_READ: Final = re.compile(r"RBAC: .*role.* not found", re.DOTALL)
_NOT_THE_AUTHORS: Final = sys.stdlib_module_names | {"dra_sdk", "pluggy"}


class DraError(Exception):
    """Root of all errors of this package."""


class DriverLoadError(DraError):
    """A driver cannot be found, imported or used; names the driver and the distribution it comes from."""


class HookError(DraError):
    """A hook raised, or returned something that its contract forbids; names the driver and the hook."""


class SettingsError(DraError):
    """A flag, an environment variable or a path of this process is unusable; `problems` holds one sentence for each."""

    def __init__(self, *problems: str) -> None:
        self.problems = problems
        super().__init__("; ".join(problems))


class InvalidObjectError(DraError):
    """An object breaks limits of its API; `problems` holds one sentence for each."""

    def __init__(self, subject: str, problems: list[str]) -> None:
        self.subject = subject
        self.problems = problems
        super().__init__(f"{subject}: " + "; ".join(problems))


class ClaimError(DraError):
    """This claim cannot be prepared or unprepared; other claims of the same call are not affected."""

    #: Whether the kubelet's next attempt can succeed without a change of an object.
    retriable: ClassVar[bool] = True


class ConfigError(ClaimError):
    """The opaque configuration of a claim or its DeviceClass is wrong."""

    retriable = False


class DeviceHeldError(ClaimError):
    """Another claim holds a device of this claim, and the device is not shared nor requested with admin access."""


class NotNeededError(ClaimError):
    """Raised in `HeldClaim.undoing`: what the step would undo has vanished or was replaced, so nothing is left."""


class PermanentError(ClaimError):
    """Raised by a hook: a retry is useless until the claim, the driver or the node changes."""

    retriable = False


class RetriableError(ClaimError):
    """Raised by a hook: the kubelet's next attempt may succeed."""


class StateError(DraError):
    """A file under the plugin data directory cannot be read or trusted; it is left as it is."""


class HardwareError(DraError):
    """A file of the host is missing or has unexpected content; names the file and what it should hold."""


class NriError(DraError):
    """The container runtime's NRI socket cannot be used, or a peer breaks the protocol; names socket and message."""


class ApiError(DraError):
    """The API server answered with an error status.

    status: the HTTP status, 0 if there was no answer.
    reason: the reason of the meta/v1 Status, such as `Conflict`.
    retry_after: seconds that the server asks to wait, None if it does not.
    """

    def __init__(self, message: str, *, status: int = 0, reason: str = "", retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.retry_after = retry_after

    @property
    def temporary(self) -> bool:
        """Whether the same request may succeed soon: the server is busy, or has just started.

        A server that starts forbids everything until its RBAC authorizer has read the roles; its message says so.
        """
        return self.status in _BUSY or (self.status == _FORBIDDEN and _ROLES_NOT_READ.search(str(self)) is not None)


class NotFoundError(ApiError):
    """404: the object does not exist, or the API group version is not served."""


class ConflictError(ApiError):
    """409: the object changed since it was read, or exists already (`reason` says which)."""


class GoneError(ApiError):
    """410: the resourceVersion is too old; list again."""


class InvalidError(ApiError):
    """422: the object breaks a rule of the API."""


class UnreachableError(ApiError):
    """The API server was not reached, or its answer was not complete."""

    @property
    def temporary(self) -> bool:
        """Always."""
        return True


def raised_at(error: BaseException) -> str:
    """Return the author's line that raised `error`, as ` (my_driver.py, line 12)`; empty if no code of the author ran.

    Empty also for a DraError, whose message is for users of the driver. The line is the last one in the package that
    the SDK called: `pathlib` raises for a missing file, but the author looks for the line that reads it.
    """
    if isinstance(error, DraError):
        return ""
    frames = [frame for frame in _frames(error) if frame[0] not in _NOT_THE_AUTHORS]
    lines = [(file, line) for package, file, line in frames if package == frames[0][0]]
    return f" ({lines[-1][0].rpartition('/')[2]}, line {lines[-1][1]})" if lines else ""


def _frames(error: BaseException) -> Iterator[tuple[str, str, int]]:
    """Yield package, file and line of each call, outermost first."""
    for frame, line in walk_tb(error.__traceback__):
        yield str(frame.f_globals.get("__name__")).partition(".")[0], frame.f_code.co_filename, line


def one_line(text: str, limit: int) -> str:
    """Return `text` on one line of at most `limit` characters, safe for terminals and logs.

    Runs of white space become one space. What is not printable (control characters, marks that reverse the direction
    of writing, lone surrogates) is written as an escape such as `\\x1b`.
    """
    shown = printable(" ".join(text[: 4 * limit].split()))
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"
