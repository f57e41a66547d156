"""The exception of the harness."""

from __future__ import annotations


class HarnessError(Exception):
    """The machine lacks something, or a component did not start. The message says what, where, and what to do."""
