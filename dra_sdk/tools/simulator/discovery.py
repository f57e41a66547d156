"""The paths that tell a client what the server has: /version, the health checks, /api, /apis and the resource lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dra_sdk.tools.simulator.resources import Catalog, ResourceType

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
STATUS_VERBS = ["get", "patch", "update"]
HEALTH_PATHS = frozenset({"/healthz", "/livez", "/readyz"})


def document(catalog: Catalog, path: str, git_version: str) -> dict[str, Any] | None:
    """The document at a discovery path, or None where there is none."""
    match path.strip("/").split("/"):
        case ["version"]:
            found: dict[str, Any] | None = _version(git_version)
        case ["api"]:
            found = {"kind": "APIVersions", "versions": _versions(catalog, ""), "serverAddressByClientCIDRs": []}
        case ["apis"]:
            found = _groups(catalog)
        case ["apis", group]:
            found = _group(catalog, group) if _versions(catalog, group) else None
        case ["api", version]:
            found = _resources(catalog, "", version)
        case ["apis", group, version]:
            found = _resources(catalog, group, version)
        case _:
            found = None
    return found


def _version(git_version: str) -> dict[str, Any]:
    major, minor = git_version.removeprefix("v").split(".")[:2]
    return {
        "major": major,
        "minor": minor,
        "gitVersion": git_version,
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "linux/amd64",
    }


def _versions(catalog: Catalog, group: str) -> list[str]:
    return list(dict.fromkeys(t.version for t in catalog if t.group == group))


def _groups(catalog: Catalog) -> dict[str, Any]:
    names = dict.fromkeys(t.group for t in catalog if t.group)
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(catalog, name) for name in names]}


def _group(catalog: Catalog, group: str) -> dict[str, Any]:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in _versions(catalog, group)]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": group,
        "versions": versions,
        "preferredVersion": versions[0],
    }


def _resources(catalog: Catalog, group: str, version: str) -> dict[str, Any] | None:
    types = [t for t in catalog if (t.group, t.version) == (group, version)]
    if not types:
        return None
    listed: list[dict[str, Any]] = []
    for resource in types:
        listed.append(_listed(resource, "", VERBS))
        if resource.status:
            listed.append(_listed(resource, "/status", STATUS_VERBS))
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": types[0].api_version,
        "resources": listed,
    }


def _listed(resource: ResourceType, suffix: str, verbs: list[str]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": resource.plural + suffix,
        "singularName": "" if suffix else resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs,
    }
    if resource.short_names and not suffix:
        entry["shortNames"] = list(resource.short_names)
    return entry
