"""From method and URL to what is meant: which kind, which object, which verb, with which parameters.

Contract: the URL scheme of the Kubernetes API concepts page.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from dra_sdk.tools.simulator import statuses

if TYPE_CHECKING:
    from dra_sdk.tools.simulator.resources import Catalog, ResourceType

_ITEM_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_TRUE = frozenset({"true", "1"})


@dataclass(frozen=True)
class Target:
    """What a request is about. `resource` is None for a path that is no resource, such as /version."""

    verb: str
    path: str
    resource: ResourceType | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: dict[str, str] = field(default_factory=dict)

    @property
    def plural(self) -> str:
        """The plural name of the resource, "" for none."""
        return self.resource.plural if self.resource else ""

    def flag(self, parameter: str) -> bool:
        """Whether a query parameter is set to true."""
        return self.query.get(parameter, "").lower() in _TRUE

    def number(self, parameter: str) -> int | None:
        """A query parameter as a number, None where it is absent; `StatusError` 400 where it is none."""
        text = self.query.get(parameter, "")
        if not text:
            return None
        if not text.isdecimal():
            raise statuses.bad_request(f'{parameter}: Invalid value: "{text}": must be a number')
        return int(text)


def parse(catalog: Catalog, method: str, url: str) -> Target:
    """What the request means; `StatusError` 405 where the resource has no such verb."""
    path, _, query_text = url.partition("?")
    query = dict(parse_qsl(query_text, keep_blank_values=True))
    parts = [unquote(part) for part in path.split("/") if part]
    located = _located(catalog, parts)
    if located is None:
        return Target(method.lower(), path, query=query)
    resource, namespace, name, subresource = located
    verbs = _ITEM_VERBS if name else _COLLECTION_VERBS
    target = Target(verbs.get(method, ""), path, resource, namespace, name, subresource, query)
    if not target.verb or (subresource and target.verb == "delete"):
        raise statuses.method_not_allowed(resource, method.lower())
    if method == "GET" and target.flag("watch") and not subresource:
        return Target("watch", path, resource, namespace, name, "", query)
    return target


def _located(catalog: Catalog, parts: list[str]) -> tuple[ResourceType, str, str, str] | None:
    if parts[:1] == ["api"]:
        group, rest = "", parts[1:]
    elif parts[:1] == ["apis"]:
        group, rest = (parts[1], parts[2:]) if len(parts) > 1 else ("", [])
    else:
        return None
    version, rest = (rest[0], rest[1:]) if rest else ("", [])
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] != "status":  # noqa: PLR2004
        namespace, rest = rest[1], rest[2:]
    if not rest:
        return None
    resource = catalog.find(group, version, rest[0])
    name, subresource, extra = (*rest[1:], "", "", "")[:3]
    if resource is None or extra or (namespace and not resource.namespaced):
        return None
    if subresource and not (subresource == "status" and resource.status):
        return None
    return resource, namespace, name, subresource
