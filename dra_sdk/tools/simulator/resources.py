"""The kinds of object that the simulated API server serves, what differs between them, and its discovery documents.

A `Catalog` holds the kinds of one server. Leave a kind out or serve another version of it to simulate an older cluster;
add kinds to serve more. Source: the strategies in Kubernetes pkg/registry/{resource,core}; k8s.io/apimachinery
meta/v1 APIGroup and APIResource.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from dra_sdk.model import JSON
from dra_sdk.wire.profile import OLDEST, ServerProfile

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
STATUS_VERBS = ["get", "patch", "update"]
HEALTH_PATHS = frozenset({"/healthz", "/livez", "/readyz"})
NAME_AND_NAMESPACE = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True)
class ResourceType:
    """One kind of object.

    group: the API group, "" for the core group.
    version: the API version.
    plural: the resource name, as in URLs.
    kind: the kind.
    namespaced: whether its objects are in namespaces.
    status: whether it has a status subresource; create and update of the object then ignore the status.
    keeps_status_on_create: whether create takes the status all the same.
    generation: whether the server counts changes of the spec in `metadata.generation`.
    returns_deleted: whether delete answers with the object; otherwise with a Status.
    short_names: as kubectl takes them.
    field_selectors: the dotted paths that a field selector may name.
    columns: what a client that asks for a table gets: the columns and their dotted paths, without the age.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = False
    status: bool = False
    keeps_status_on_create: bool = False
    generation: bool = False
    returns_deleted: bool = False
    short_names: tuple[str, ...] = ()
    field_selectors: tuple[str, ...] = NAME_AND_NAMESPACE
    columns: tuple[tuple[str, str], ...] = (("Name", "metadata.name"),)

    @property
    def api_version(self) -> str:
        """`group/version`, or `version` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`plural.group`, as error messages have it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def without_field_selector(self, *paths: str) -> ResourceType:
        """Return this kind as an older server has it: field selectors on `paths` are refused with 400."""
        return replace(self, field_selectors=tuple(p for p in self.field_selectors if p not in paths))


@dataclass(frozen=True)
class Catalog:
    """The kinds that one server serves; iterates over `types`.

    types: the kinds.
    """

    types: tuple[ResourceType, ...]

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self.types)

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        """Return the kind at /apis/<group>/<version>/<plural>, None if the server does not serve it."""
        url = (group, version, plural)
        return next((t for t in self.types if (t.group, t.version, t.plural) == url), None)

    def __getitem__(self, plural: str) -> ResourceType:
        for resource in self.types:
            if resource.plural == plural:
                return resource
        known = ", ".join(t.plural for t in self.types)
        raise KeyError(f"this server has no resource {plural!r}; it has {known}")

    def without(self, *plurals: str) -> Catalog:
        """Return the same without `plurals`, as a server has it that is older than their API version."""
        return Catalog(tuple(t for t in self.types if t.plural not in plurals))

    def having(self, *types: ResourceType) -> Catalog:
        """Return the same with `types` added; each replaces a kind of the same group and plural."""
        replaced = {(t.group, t.plural) for t in types}
        return Catalog((*(t for t in self.types if (t.group, t.plural) not in replaced), *types))


_DRA = "resource.k8s.io"
_FIRST_WITH_POOL_STATUS = 36
_FIRST_WITH_POOL_SELECTOR = 37
_SLICE_SELECTORS = ("metadata.name", "spec.nodeName", "spec.driver", "spec.pool.name")
_SLICE_COLUMNS = (
    ("Name", "metadata.name"),
    ("Node", "spec.nodeName"),
    ("Driver", "spec.driver"),
    ("Pool", "spec.pool.name"),
)
_POD_SELECTORS = (
    "metadata.name",
    "metadata.namespace",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.phase",
)
_EVENT_SELECTORS = (
    "metadata.name",
    "metadata.namespace",
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "reason",
    "type",
)

_dra = partial(ResourceType, _DRA, "v1", returns_deleted=True)
_core = partial(ResourceType, "", "v1")
_CATALOG = Catalog(
    (
        _dra(
            "resourceslices",
            "ResourceSlice",
            generation=True,
            field_selectors=_SLICE_SELECTORS,
            columns=_SLICE_COLUMNS,
        ),
        _dra("resourceclaims", "ResourceClaim", namespaced=True, status=True),
        _dra("resourceclaimtemplates", "ResourceClaimTemplate", namespaced=True),
        _dra("deviceclasses", "DeviceClass", generation=True),
        _core(
            "nodes",
            "Node",
            status=True,
            keeps_status_on_create=True,
            short_names=("no",),
            field_selectors=("metadata.name", "spec.unschedulable"),
        ),
        _core(
            "pods",
            "Pod",
            namespaced=True,
            status=True,
            generation=True,
            returns_deleted=True,
            short_names=("po",),
            field_selectors=_POD_SELECTORS,
        ),
        _core(
            "namespaces",
            "Namespace",
            status=True,
            short_names=("ns",),
            field_selectors=("metadata.name", "status.phase"),
        ),
        _core("events", "Event", namespaced=True, short_names=("ev",), field_selectors=_EVENT_SELECTORS),
        _core("serviceaccounts", "ServiceAccount", namespaced=True, returns_deleted=True, short_names=("sa",)),
    )
)


def server_catalog(profile: ServerProfile) -> Catalog:
    """Return the kinds that matter for DRA, as a server of this release with these feature gates serves them."""
    catalog = _CATALOG
    if profile.minor < _FIRST_WITH_POOL_SELECTOR:
        catalog = catalog.having(catalog["resourceslices"].without_field_selector("spec.pool.name"))
    if profile.enabled(profile.taint_rule_gate):
        version, *_ = profile.taint_rule_versions()
        has_status = profile.minor > OLDEST
        rule = ResourceType(_DRA, version, "devicetaintrules", "DeviceTaintRule", status=has_status, generation=True)
        catalog = catalog.having(replace(rule, returns_deleted=True, field_selectors=("metadata.name",)))
    if profile.minor >= _FIRST_WITH_POOL_STATUS and profile.enabled("DRAResourcePoolStatus"):
        request = ResourceType(_DRA, "v1alpha3", "resourcepoolstatusrequests", "ResourcePoolStatusRequest", status=True)
        catalog = catalog.having(replace(request, returns_deleted=True, field_selectors=("metadata.name",)))
    return catalog


CATALOG = server_catalog(ServerProfile.of("1.37"))
"""What the simulated server serves by default: the kinds that matter for DRA, as in Kubernetes 1.37."""


# -- discovery


def discovery(catalog: Catalog, path: str, git_version: str) -> JSON | None:
    """Return the document at a discovery path: /version, /api, /apis or a resource list; None if there is none."""
    match path.strip("/").split("/"):
        case ["version"]:
            document: JSON | None = _version(git_version)
        case ["api"]:
            document = {"kind": "APIVersions", "versions": _versions(catalog, ""), "serverAddressByClientCIDRs": []}
        case ["apis"]:
            document = _groups(catalog)
        case ["apis", group]:
            document = _group(catalog, group) if _versions(catalog, group) else None
        case ["api", version]:
            document = _resources(catalog, "", version)
        case ["apis", group, version]:
            document = _resources(catalog, group, version)
        case _:
            document = None
    return document


def _version(git_version: str) -> JSON:
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


def _groups(catalog: Catalog) -> JSON:
    names = dict.fromkeys(t.group for t in catalog if t.group)
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(catalog, name) for name in names]}


def _group(catalog: Catalog, group: str) -> JSON:
    versions = [{"groupVersion": f"{group}/{version}", "version": version} for version in _versions(catalog, group)]
    return {
        "kind": "APIGroup",
        "apiVersion": "v1",
        "name": group,
        "versions": versions,
        "preferredVersion": versions[0],
    }


def _resources(catalog: Catalog, group: str, version: str) -> JSON | None:
    types = [t for t in catalog if (t.group, t.version) == (group, version)]
    if not types:
        return None
    entries: list[JSON] = []
    for resource in types:
        entries.append(_api_resource(resource, "", VERBS))
        if resource.status:
            entries.append(_api_resource(resource, "/status", STATUS_VERBS))
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": types[0].api_version,
        "resources": entries,
    }


def _api_resource(resource: ResourceType, suffix: str, verbs: list[str]) -> JSON:
    entry: JSON = {
        "name": resource.plural + suffix,
        "singularName": "" if suffix else resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs,
    }
    if resource.short_names and not suffix:
        entry["shortNames"] = list(resource.short_names)
    return entry
