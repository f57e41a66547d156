"""The values in an author's hooks: devices, pools, claims, edits, configuration, health. No I/O."""

from __future__ import annotations

from typing import Any, TypeAlias

JSON: TypeAlias = dict[str, Any]
"""A JSON object, as `json.loads` returns it."""
