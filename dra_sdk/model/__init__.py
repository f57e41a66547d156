"""The values that hooks take and return: devices, pools, claims, container edits, configuration, health. No I/O.

Source: resource.k8s.io/v1; the Container Device Interface specification 1.1 for container edits.
"""

from __future__ import annotations

from typing import Any, TypeAlias

JSON: TypeAlias = dict[str, Any]
"""A JSON object, as `json.loads` returns it."""
