"""The audit log: which of its events count, and what they say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.harness import audit
from tests.cluster.harness.audit import AuditLog, Request

USER = "system:serviceaccount:dra-sdk:dra-cpu"


def event(verb: str, code: int = 200, *, stage: str = "ResponseComplete", user: str = USER, **target: str) -> str:
    made: dict[str, Any] = {
        "verb": verb,
        "stage": stage,
        "user": {"username": user},
        "requestURI": "/version?timeout=1s",
    }
    made |= {"responseStatus": {"code": code}, "annotations": {"authorization.k8s.io/reason": "RBAC"}}
    return json.dumps(made | ({"objectRef": target} if target else {})) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> AuditLog:
    (tmp_path / audit.FILE).write_text(event("get", resource="nodes"))
    return AuditLog.of(tmp_path)


def asked(log: AuditLog, path: Path, *lines: str) -> list[tuple[str, str, bool]]:
    """Verb and resource of what the log has got, and whether it was forbidden."""
    with (path / audit.FILE).open("a") as file:
        file.writelines(lines)
    return [(each.verb, each.resource, each.is_forbidden) for each in log.requests(USER)]


def test_only_what_comes_after_the_mark_counts_and_only_of_the_user(log: AuditLog, tmp_path: Path) -> None:
    assert asked(log, tmp_path) == []
    found = asked(log, tmp_path, event("get", resource="nodes", user="another"), event("list", resource="pods"))
    assert found == [("list", "pods", False)]


def test_a_watch_counts_when_it_begins_or_is_refused(log: AuditLog, tmp_path: Path) -> None:
    begun = event("watch", stage="ResponseStarted", resource="nodes")
    ended, refused = event("watch", resource="nodes"), event("watch", 403, resource="pods")
    assert asked(log, tmp_path, begun, ended, refused) == [("watch", "nodes", False), ("watch", "pods", True)]


def test_a_line_that_is_being_written_is_left_for_later(log: AuditLog, tmp_path: Path) -> None:
    line = event("get", resource="nodes")
    assert asked(log, tmp_path, line[:20]) == []
    assert asked(log, tmp_path, line[20:]) == [("get", "nodes", False)]


def test_a_request_has_its_subresource_or_its_path(log: AuditLog, tmp_path: Path) -> None:
    status = event("patch", 401, apiGroup="resource.k8s.io", resource="resourceclaims", subresource="status")
    assert asked(log, tmp_path, status, event("get"))
    assert log.requests(USER) == [
        Request("patch", "resource.k8s.io", "resourceclaims/status", 401, "RBAC"),
        Request("get", "", "/version", 200, "RBAC"),
    ]
    assert log.requests(USER)[0].is_forbidden


def test_a_policy_leaves_out_what_no_rule_names() -> None:
    found = json.loads(audit.policy([{"level": "Metadata", "users": ["bench"]}]))
    assert [each["level"] for each in found["rules"]] == ["Metadata", "None"]
