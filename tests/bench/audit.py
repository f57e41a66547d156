"""Counts the requests a driver made, from the API server's audit log."""

from __future__ import annotations

from collections import Counter

from tests.cluster.harness.audit import AuditLog


def counted(audit: AuditLog, user: str) -> Counter[str]:
    """The requests of `user` since the log was marked, by what was asked for: `create resourceslices`, `get nodes`."""
    return Counter(f"{each.verb} {each.resource}" for each in audit.requests(user))
