"""One function per verb: from a parsed request to an answer, on top of the `ObjectStore`.

Handlers raise `statuses.StatusError`; the server turns it into the answer.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import yaml

from dra_sdk.tools.simulator import options, patching, protobuf, selectors, statuses
from dra_sdk.tools.simulator.http1 import JSON_TYPE, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from dra_sdk.model import JSON
    from dra_sdk.tools.simulator.history import Entry, Watch
    from dra_sdk.tools.simulator.objects import ObjectStore
    from dra_sdk.tools.simulator.resources import ResourceType
    from dra_sdk.tools.simulator.routes import Target
    from dra_sdk.tools.simulator.selectors import Selector

_SNAPSHOTS = 64
# Free-form JSON in which null means something; elsewhere null and absent are the same to a typed server.
_FREE_FORM = frozenset({"parameters", "data"})


class Handlers:
    """Answers requests about resources."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._pages = _Pages()
        self._verbs: dict[str, Callable[[Target, ResourceType, Request], Response]] = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    def handle(self, target: Target, resource: ResourceType, request: Request) -> Response:
        """Answers every verb but watch."""
        return self._verbs[target.verb](target, resource, request)

    def open_watch(self, target: Target, resource: ResourceType) -> Watch:
        """Opens the watch that a request asks for."""
        options.check_watch(target)
        version = target.number("resourceVersion")
        initial = target.flag("sendInitialEvents")
        return self.store.watch(resource, _selector(target, resource), version=version, initial=initial)

    def _get(self, target: Target, resource: ResourceType, _: Request) -> Response:
        options.check_reached(target, self.store.version)
        return Response(200, self.store.get(resource, target.name, target.namespace).encoded)

    def _list(self, target: Target, resource: ResourceType, _: Request) -> Response:
        options.check_list(target)
        limit, token = target.number("limit") or 0, target.query.get("continue", "")
        if token:
            entries, version = self._pages.rest(token)
            self.store.check_remembered(resource, version)
        else:
            entries, version = self._first_page(target, resource)
        metadata: JSON = {"resourceVersion": str(version)}
        if limit and len(entries) > limit:
            metadata["continue"] = self._pages.keep(entries[limit:], version)
            metadata["remainingItemCount"] = len(entries) - limit
            entries = entries[:limit]
        return Response(200, _list_body(resource, metadata, entries))

    def _first_page(self, target: Target, resource: ResourceType) -> tuple[list[Entry], int]:
        selector, wanted = _selector(target, resource), target.number("resourceVersion") or 0
        options.check_reached(target, self.store.version)
        if options.is_exact(target):
            return self.store.list_at(resource, selector, wanted), wanted
        return self.store.list(resource, selector)

    def _create(self, target: Target, resource: ResourceType, request: Request) -> Response:
        fields = options.FieldValidation.of(target)
        entry = self.store.create(
            resource,
            _json_body(request),
            target.namespace,
            manager=_manager(target, request),
            dry_run=_dry_run(target),
            unknown=fields.unknown,
        )
        return Response(201, entry.encoded, headers=fields.headers)

    def _update(self, target: Target, resource: ResourceType, request: Request) -> Response:
        fields = options.FieldValidation.of(target)
        entry = self.store.update(
            resource,
            _json_body(request),
            target.namespace,
            name=target.name,
            subresource=target.subresource,
            manager=_manager(target, request),
            dry_run=_dry_run(target),
            unknown=fields.unknown,
        )
        return Response(200, entry.encoded, headers=fields.headers)

    def _patch(self, target: Target, resource: ResourceType, request: Request) -> Response:
        media_type = request.headers.get("content-type", "").partition(";")[0].strip()
        if media_type == patching.APPLY_PATCH:
            return self._apply(target, resource, request)
        if media_type not in patching.MEDIA_TYPES:
            raise statuses.unsupported_media_type(patching.MEDIA_TYPES)
        fields = options.FieldValidation.of(target)
        entry = self.store.patch(
            resource,
            _operations(request.body) if media_type == patching.JSON_PATCH else _decoded(request.body),
            target.name,
            target.namespace,
            subresource=target.subresource,
            manager=_manager(target, request),
            dry_run=_dry_run(target),
            unknown=fields.unknown,
        )
        return Response(200, entry.encoded, headers=fields.headers)

    def _apply(self, target: Target, resource: ResourceType, request: Request) -> Response:
        existed = self.store.exists(resource, target.name, target.namespace)
        entry = self.store.apply(
            resource,
            _without_nulls(_yaml_body(request)),
            target.name,
            target.namespace,
            manager=target.query.get("fieldManager", ""),
            force=target.flag("force"),
            subresource=target.subresource,
            dry_run=_dry_run(target),
        )
        return Response(200 if existed else 201, entry.encoded)

    def _delete(self, target: Target, resource: ResourceType, request: Request) -> Response:
        options = _json_body(request) if request.body else {}
        preconditions = options.get("preconditions") or {}
        entry = self.store.delete(
            resource,
            target.name,
            target.namespace,
            uid=preconditions.get("uid"),
            version=preconditions.get("resourceVersion"),
            dry_run=_dry_run(target) or bool(options.get("dryRun")),
        )
        if resource.returns_deleted or entry.object["metadata"].get("deletionTimestamp"):
            return Response(200, entry.encoded)
        return Response(200, json.dumps(_deleted(resource, entry)).encode())

    def _delete_collection(self, target: Target, resource: ResourceType, _: Request) -> Response:
        entries = self.store.delete_collection(resource, _selector(target, resource), dry_run=_dry_run(target))
        return Response(200, _list_body(resource, {"resourceVersion": str(self.store.version)}, entries))


class _Pages:
    """What continue tokens stand for: the rest of a list, as it was when its first page was read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, tuple[list[Entry], int]] = OrderedDict()

    def keep(self, entries: list[Entry], version: int) -> str:
        token = base64.urlsafe_b64encode(secrets.token_bytes(18)).decode()
        with self._lock:
            self._kept[token] = (entries, version)
            while len(self._kept) > _SNAPSHOTS:
                self._kept.popitem(last=False)
        return token

    def rest(self, token: str) -> tuple[list[Entry], int]:
        try:
            base64.urlsafe_b64decode(token)
        except (ValueError, binascii.Error):
            raise statuses.bad_request("continue key is not valid") from None
        with self._lock:
            found = self._kept.get(token)
        if found is None:
            message = "The provided continue parameter is too old to display a consistent list result"
            raise statuses.expired(message)
        return found


def _selector(target: Target, resource: ResourceType) -> Selector:
    fields = target.query.get("fieldSelector", "")
    if target.name:
        fields = f"metadata.name={target.name}"
    labels = target.query.get("labelSelector", "")
    return selectors.parse(resource, namespace=target.namespace, fields=fields, labels=labels)


def _list_body(resource: ResourceType, metadata: JSON, entries: list[Entry]) -> bytes:
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    return json.dumps(head)[:-1].encode() + b',"items":[' + b",".join(e.item for e in entries) + b"]}"


def _deleted(resource: ResourceType, entry: Entry) -> JSON:
    uid = entry.object["metadata"]["uid"]
    details = {"name": entry.name, "group": resource.group, "kind": resource.plural, "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {key: value for key, value in details.items() if value},
    }


def _dry_run(target: Target) -> bool:
    return target.query.get("dryRun", "") == "All"


def _manager(target: Target, request: Request) -> str:
    return target.query.get("fieldManager") or request.headers.get("user-agent", "").partition("/")[0]


def _json_body(request: Request) -> JSON:
    media_type = request.headers.get("content-type", JSON_TYPE).partition(";")[0].strip()
    if media_type == "application/yaml":
        return _without_nulls(_yaml_body(request))
    if media_type == protobuf.MEDIA_TYPE:
        return _protobuf_body(request)
    if media_type != JSON_TYPE:
        raise statuses.unsupported_media_type([JSON_TYPE, "application/yaml", protobuf.MEDIA_TYPE])
    return _without_nulls(_decoded(request.body)) if b"null" in request.body else _decoded(request.body)


def _protobuf_body(request: Request) -> JSON:
    try:
        return protobuf.decode(request.body)
    except ValueError as error:
        raise statuses.bad_request(f"the body is no object in protobuf: {error}") from None


def _decoded(body: bytes) -> JSON:
    obj = _json(body)
    if not isinstance(obj, dict):
        raise statuses.bad_request("the body is not a JSON object")
    return obj


def _operations(body: bytes) -> list[JSON]:
    operations = _json(body)
    if not isinstance(operations, list):
        raise statuses.bad_request("the body is not a list of JSON patch operations")
    return operations


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError as error:
        raise statuses.bad_request(f"the body is not JSON: {error}") from None


def _yaml_body(request: Request) -> JSON:
    # Most clients send JSON here, which is YAML too but a hundred times slower to read as such.
    try:
        obj = json.loads(request.body)
    except ValueError:
        try:
            obj = yaml.safe_load(request.body)
        except yaml.YAMLError as error:
            raise statuses.bad_request(f"error decoding YAML: {error}") from None
    if not isinstance(obj, dict):
        raise statuses.bad_request("the body is not an object")
    return obj


def _without_nulls(obj: JSON) -> JSON:
    return {
        key: inner if key in _FREE_FORM else _without_null(inner) for key, inner in obj.items() if inner is not None
    }


def _without_null(value: Any) -> Any:
    if isinstance(value, dict):
        return _without_nulls(value)
    return [_without_null(item) for item in value] if isinstance(value, list) else value
