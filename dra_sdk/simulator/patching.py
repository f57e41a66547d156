"""JSON merge patch (RFC 7386) and the media types of PATCH."""

from __future__ import annotations

from typing import Any

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
MEDIA_TYPES = (MERGE_PATCH, APPLY_PATCH)


def merge_patched(target: Any, patch: Any) -> Any:
    """`target` with `patch` merged in: null removes, objects merge, everything else replaces. Changes neither."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patched(merged.get(key), value)
    return merged
