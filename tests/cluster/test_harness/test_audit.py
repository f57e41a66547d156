"""The audit log: which of its events count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cluster.harness import audit
from tests.cluster.harness.audit import AuditLog

USER = "system:serviceaccount:dra-sdk:dra-cpu"


def event(verb: str, resource: str, code: int = 200, *, stage: str = "ResponseComplete", user: str = USER) -> str:
    fields: dict[str, Any] = {"verb": verb, "stage": stage, "user": {"username": user}, "requestURI": "/version"}
    fields |= {"responseStatus": {"code": code}, "annotations": {"authorization.k8s.io/reason": "RBAC"}}
    return json.dumps({**fields, "objectRef": {"resource": resource}}) + "\n"


def test_each_request_of_the_user_counts_once_and_when_its_line_is_written(tmp_path: Path) -> None:
    file = tmp_path / audit.FILE
    file.write_text(event("get", "before"))
    log = AuditLog.of(tmp_path)
    half = event("list", "pods")
    watches = [event("watch", "nodes", stage="ResponseStarted"), event("watch", "nodes"), event("watch", "pods", 403)]
    with file.open("a") as lines:
        lines.writelines([event("get", "nodes", user="another"), *watches, half[:20]])
    found = [("watch", "nodes", False), ("watch", "pods", True)]
    assert [(request.verb, request.resource, request.is_forbidden) for request in log.requests(USER)] == found
    with file.open("a") as lines:
        lines.write(half[20:])
    assert [request.verb for request in log.requests(USER)] == ["watch", "watch", "list"]
