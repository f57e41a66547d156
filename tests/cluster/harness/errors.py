"""The one exception of the cluster harness."""

from __future__ import annotations


class HarnessError(Exception):
    """Something the harness needs is missing or did not come up; the message says what, where and what to do."""
