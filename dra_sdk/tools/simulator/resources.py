"""The kinds of object that the simulated API server serves, and what differs between them.

A `Catalog` is what one server knows. Leave a kind out, or serve another version of it, to play an older cluster; add
kinds to widen it. Source: the strategies in Kubernetes pkg/registry/{resource,core}.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dra_sdk.wire.profile import OLDEST, ServerProfile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


NAME_AND_NAMESPACE = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True)
class ResourceType:
    """One kind of object.

    `status` tells whether it has a status subresource (whose content create and update then ignore), `generation`
    whether the server counts changes of spec, `returns_deleted` whether delete answers with the object, not a Status.
    `field_selectors` are the dotted paths a field selector may name.
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

    @property
    def api_version(self) -> str:
        """`group/version`, or `version` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """`plural.group`, as it stands in error messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "") -> str:
        """The URL path of the collection, or of one object."""
        parts = ["", "apis", self.group, self.version] if self.group else ["", "api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        return "/".join([*parts, name] if name else parts)

    def without_field_selector(self, *paths: str) -> ResourceType:
        """This kind as an older server has it: the field selectors `paths` answer 400."""
        return replace(self, field_selectors=tuple(p for p in self.field_selectors if p not in paths))


@dataclass(frozen=True)
class Catalog:
    """The kinds one server serves. Iterates in the order given; look-ups are by plural or by URL parts."""

    types: tuple[ResourceType, ...]
    _by_url: dict[tuple[str, str, str], ResourceType] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_url = {(t.group, t.version, t.plural): t for t in self.types}
        object.__setattr__(self, "_by_url", by_url)

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(self.types)

    def find(self, group: str, version: str, plural: str) -> ResourceType | None:
        """The kind at /apis/<group>/<version>/<plural>, or None where the server does not serve it."""
        return self._by_url.get((group, version, plural))

    def __getitem__(self, plural: str) -> ResourceType:
        for found in self.types:
            if found.plural == plural:
                return found
        known = ", ".join(t.plural for t in self.types)
        raise KeyError(f"this server has no resource {plural!r}; it has {known}")

    def without(self, *plurals: str) -> Catalog:
        """A server that does not serve `plurals`, as one older than their API version."""
        return Catalog(tuple(t for t in self.types if t.plural not in plurals))

    def having(self, *types: ResourceType) -> Catalog:
        """A server with `types` added, each replacing a kind of the same group and plural."""
        return Catalog((*_except(self.types, types), *types))


def _except(types: Iterable[ResourceType], replaced: Iterable[ResourceType]) -> list[ResourceType]:
    gone = {(t.group, t.plural) for t in replaced}
    return [t for t in types if (t.group, t.plural) not in gone]


_DRA = "resource.k8s.io"
_FIRST_WITH_POOL_SELECTOR = 37
_SLICE_SELECTORS = ("metadata.name", "spec.nodeName", "spec.driver", "spec.pool.name")
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

_CATALOG = Catalog(
    (
        ResourceType(
            _DRA,
            "v1",
            "resourceslices",
            "ResourceSlice",
            generation=True,
            returns_deleted=True,
            field_selectors=_SLICE_SELECTORS,
        ),
        ResourceType(
            _DRA,
            "v1",
            "resourceclaims",
            "ResourceClaim",
            namespaced=True,
            status=True,
            returns_deleted=True,
        ),
        ResourceType(
            _DRA,
            "v1",
            "resourceclaimtemplates",
            "ResourceClaimTemplate",
            namespaced=True,
            returns_deleted=True,
        ),
        ResourceType(_DRA, "v1", "deviceclasses", "DeviceClass", generation=True, returns_deleted=True),
        ResourceType(
            "",
            "v1",
            "nodes",
            "Node",
            status=True,
            keeps_status_on_create=True,
            short_names=("no",),
            field_selectors=("metadata.name", "spec.unschedulable"),
        ),
        ResourceType(
            "",
            "v1",
            "pods",
            "Pod",
            namespaced=True,
            status=True,
            generation=True,
            returns_deleted=True,
            short_names=("po",),
            field_selectors=_POD_SELECTORS,
        ),
        ResourceType(
            "",
            "v1",
            "namespaces",
            "Namespace",
            status=True,
            short_names=("ns",),
            field_selectors=("metadata.name", "status.phase"),
        ),
        ResourceType(
            "",
            "v1",
            "events",
            "Event",
            namespaced=True,
            short_names=("ev",),
            field_selectors=_EVENT_SELECTORS,
        ),
        ResourceType(
            "",
            "v1",
            "serviceaccounts",
            "ServiceAccount",
            namespaced=True,
            returns_deleted=True,
            short_names=("sa",),
        ),
    )
)


def server_catalog(profile: ServerProfile) -> Catalog:
    """What a server of this release and these feature gates serves, as far as DRA goes."""
    catalog = _CATALOG
    if profile.minor < _FIRST_WITH_POOL_SELECTOR:
        catalog = catalog.having(catalog["resourceslices"].without_field_selector("spec.pool.name"))
    if profile.enabled(profile.taint_rule_gate):
        version, *_ = profile.taint_rule_versions()
        has_status = profile.minor > OLDEST
        rule = ResourceType(_DRA, version, "devicetaintrules", "DeviceTaintRule", status=has_status, generation=True)
        catalog = catalog.having(replace(rule, returns_deleted=True, field_selectors=("metadata.name",)))
    return catalog


CATALOG = server_catalog(ServerProfile.of("1.37"))
"""What the simulated server serves unless told otherwise: Kubernetes 1.37 as far as DRA goes."""
