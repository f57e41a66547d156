"""Admin access, which an API server grants only in namespaces that carry a label.

Source: KEP-5018; registry/resource, authorization of admin access.
"""

from __future__ import annotations

from typing import Final

from dra_sdk.model import JSON

LABEL: Final = "resource.kubernetes.io/admin-access"
_NEEDED: Final = f'admin access is only granted in namespaces with the label {LABEL}: "true"'


def asks_for_admin_access(obj: JSON) -> bool:
    """Whether a claim, or the claims of a template, ask for devices that others may hold."""
    spec = obj["spec"].get("spec", {}) if obj["kind"] == "ResourceClaimTemplate" else obj["spec"]
    requests = spec.get("devices", {}).get("requests") or ()
    return any((each.get("exactly") or {}).get("adminAccess") for each in requests)


def refusal(namespace: JSON) -> str:
    """Why this namespace does not grant it; nothing if it does."""
    labels = namespace["metadata"].get("labels") or {}
    return "" if labels.get(LABEL) == "true" else f"{_NEEDED}; {namespace['metadata']['name']} has none"


def assumption(namespace: str) -> str:
    """What is assumed of a namespace that nobody described."""
    return f"{_NEEDED}; namespace {namespace} is not given, and assumed to have it"
