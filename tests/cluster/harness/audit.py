"""The audit log of an API server: who asked for what, what the server answered, and by which rule it was allowed.

Source: audit.k8s.io/v1 Event and Policy.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Self

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

OF_SERVICE_ACCOUNTS: Final[Sequence[Mapping[str, Any]]] = (
    {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
    {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
)
"""Rules of a policy: requests of service accounts, without those of the cluster's own controllers."""
FILE: Final = "audit.jsonl"
"""The audit log of a cluster, among its logs."""


@dataclass(frozen=True)
class Request:
    """One request that was answered; a watch counts when it begins.

    verb: such as `get`, as rules of RBAC have it.
    group: the API group; empty for the core group.
    resource: such as `resourceclaims/status`; the path for a request that is not about a resource.
    status: the HTTP status of the answer.
    reason: why the authorizer allowed it or did not.
    """

    verb: str
    group: str
    resource: str
    status: int
    reason: str

    @property
    def is_forbidden(self) -> bool:
        """Whether the user lacks the right."""
        return self.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}


class AuditLog:
    """The part of the log that was written since `mark` was last called."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    @classmethod
    def of(cls, logs: Path) -> Self:
        """Returns what a cluster writes down from now on: `OF_SERVICE_ACCOUNTS`; `logs` is the folder of its logs."""
        found = cls(logs / FILE)
        found.mark()
        return found

    def mark(self) -> None:
        """Forget what was written so far."""
        self._offset = self._path.stat().st_size

    def requests(self, user: str) -> list[Request]:
        """Returns the requests of `user` since the mark, in the order of their answers."""
        return [_request(event) for event in self._events() if _counts(event, user)]

    def _events(self) -> Iterator[dict[str, Any]]:
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if line.endswith(b"\n"):  # else it is being written
                    yield json.loads(line)


def policy(rules: Sequence[Mapping[str, Any]]) -> str:
    """Returns the file of a policy with these rules, by which each request is written once; others are not."""
    kept = {"omitStages": ["RequestReceived"], "rules": [*rules, {"level": "None"}]}
    return json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **kept})


def flags(policy_file: Path, log: Path) -> list[str]:
    """Returns the flags of an API server with an audit log, which it writes before the answer has ended."""
    return [f"--audit-policy-file={policy_file}", f"--audit-log-path={log}", "--audit-log-mode=blocking"]


def _counts(event: Mapping[str, Any], user: str) -> bool:
    # A watch is logged when it begins and when it ends; everything else when it was answered. What is refused before it
    # begins has an end only.
    begins = event["verb"] == "watch" and event["responseStatus"]["code"] == HTTPStatus.OK
    stage = "ResponseStarted" if begins else "ResponseComplete"
    return bool(event["user"]["username"] == user and event["stage"] == stage)


def _request(event: Mapping[str, Any]) -> Request:
    target = event.get("objectRef", {})
    parts = filter(None, (target.get("resource"), target.get("subresource")))
    return Request(
        event["verb"],
        target.get("apiGroup", ""),
        "/".join(parts) or str(event["requestURI"]).partition("?")[0],
        event["responseStatus"]["code"],
        event.get("annotations", {}).get("authorization.k8s.io/reason", ""),
    )
