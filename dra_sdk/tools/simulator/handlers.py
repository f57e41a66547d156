"""One function per API verb: from a request to its answer, on top of the `ObjectStore`.

Handlers raise `statuses.StatusError`; the server sends its Status object as the answer.
"""

from __future__ import annotations

import base64
import binascii
import json
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, TypeVar

import yaml

from dra_sdk.model import JSON
from dra_sdk.tools.simulator import patching, protobuf, selectors, statuses
from dra_sdk.tools.simulator.objects import ObjectStore, WriteOptions
from dra_sdk.tools.simulator.request import (
    JSON_TYPE,
    ApiResponse,
    FieldValidation,
    ReceivedRequest,
    RequestInfo,
    check_list,
    check_version,
    check_watch,
    is_exact,
)
from dra_sdk.tools.simulator.resources import ResourceType
from dra_sdk.tools.simulator.selectors import ObjectSelector
from dra_sdk.tools.simulator.watch_cache import StoredObject, Watcher

T = TypeVar("T")
YAML_TYPE = "application/yaml"
_PAGES = 64
_AS_TABLE = "as=Table"
# In free-form JSON null means something; elsewhere a typed server does not tell null from absent.
_FREE_FORM = frozenset({"parameters", "data"})


class Handlers:
    """Answers requests about resources."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self._pages = _Pages()
        self._verbs: dict[str, Callable[[ReceivedRequest, ResourceType], ApiResponse]] = {
            "get": self._get,
            "list": self._list,
            "create": self._create,
            "update": self._update,
            "patch": self._patch,
            "delete": self._delete,
            "deletecollection": self._delete_collection,
        }

    def handle(self, request: ReceivedRequest, resource: ResourceType) -> ApiResponse:
        """Answer every verb but watch."""
        return self._verbs[request.info.verb](request, resource)

    def open_watch(self, info: RequestInfo, resource: ResourceType) -> Watcher:
        """Open the watch that a request asks for."""
        info.number("timeoutSeconds")
        check_watch(info)
        version = info.number("resourceVersion")
        initial = info.flag("sendInitialEvents")
        return self.store.watch(resource, _selector(info, resource), version=version, initial=initial)

    def _get(self, request: ReceivedRequest, resource: ResourceType) -> ApiResponse:
        info = request.info
        check_version(info, self.store.version)
        return ApiResponse(200, self.store.get(resource, info.name, info.namespace).encoded)

    def _list(self, request: ReceivedRequest, resource: ResourceType) -> ApiResponse:
        info = request.info
        check_list(info)
        limit, token = info.number("limit") or 0, info.query.get("continue", "")
        if token:
            objects, version = self._pages.rest(token)
            self.store.check_version(resource, version)
        else:
            objects, version = self._first_page(info, resource)
        metadata: JSON = {"resourceVersion": str(version)}
        if limit and len(objects) > limit:
            metadata["continue"] = self._pages.keep(objects[limit:], version)
            metadata["remainingItemCount"] = len(objects) - limit
            objects = objects[:limit]
        body = _table_body if _AS_TABLE in request.accept else _list_body
        return ApiResponse(200, body(resource, metadata, objects))

    def _first_page(self, info: RequestInfo, resource: ResourceType) -> tuple[list[StoredObject], int]:
        selector, wanted = _selector(info, resource), info.number("resourceVersion") or 0
        check_version(info, self.store.version)
        if is_exact(info):
            return self.store.list_at(resource, selector, wanted), wanted
        return self.store.list(resource, selector)

    def _create(self, request: ReceivedRequest, resource: ResourceType) -> ApiResponse:
        fields = FieldValidation(request.info)
        options = _options(request, fields)
        created = self.store.create(resource, _object(request), request.info.namespace, options=options)
        return ApiResponse(201, created.encoded, headers=fields.headers)

    def _update(self, request: ReceivedRequest, resource: ResourceType) -> ApiResponse:
        info, fields = request.info, FieldValidation(request.info)
        options = _options(request, fields)
        updated = self.store.update(resource, _object(request), info.namespace, name=info.name, options=options)
        return ApiResponse(200, updated.encoded, headers=fields.headers)

    def _patch(self, request: ReceivedRequest, resource: ResourceType) -> ApiResponse:
        if request.content_type == patching.APPLY_PATCH:
            return self._apply(request, resource)
        if request.content_type not in patching.MEDIA_TYPES:
            raise statuses.unsupported_media_type(patching.MEDIA_TYPES)
        info, fields = request.info, FieldValidation(request.info)
        options = _options(request, fields)
        patched = self.store.patch(resource, _patch(request), info.name, info.namespace, options=options)
        return ApiResponse(200, patched.encoded, headers=fields.headers)

    def _apply(self, request: ReceivedRequest, resource: ResourceType) -> ApiResponse:
        info, config = request.info, _without_nulls(_yaml_object(request.body))
        existed = self.store.exists(resource, info.name, info.namespace)
        manager = info.query.get("fieldManager", "")
        options = WriteOptions(manager, info.subresource, _dry_run(info), info.flag("force"))
        applied = self.store.apply(resource, config, info.name, info.namespace, options=options)
        return ApiResponse(200 if existed else 201, applied.encoded)

    def _delete(self, request: ReceivedRequest, resource: ResourceType) -> ApiResponse:
        info, options = request.info, _object(request) if request.body else {}
        dry_run, preconditions = _dry_run(info) or bool(options.get("dryRun")), options.get("preconditions")
        if not isinstance(preconditions, dict | None):
            raise statuses.bad_request("DeleteOptions cannot be decoded: preconditions must be an object")
        deleted = self.store.delete(resource, info.name, info.namespace, preconditions=preconditions, dry_run=dry_run)
        if resource.returns_deleted or deleted.object["metadata"].get("deletionTimestamp"):
            return ApiResponse(200, deleted.encoded)
        status = statuses.deleted(resource, deleted.name, deleted.object["metadata"]["uid"])
        return ApiResponse(200, json.dumps(status).encode())

    def _delete_collection(self, request: ReceivedRequest, resource: ResourceType) -> ApiResponse:
        selector = _selector(request.info, resource)
        deleted = self.store.delete_collection(resource, selector, dry_run=_dry_run(request.info))
        return ApiResponse(200, _list_body(resource, {"resourceVersion": str(self.store.version)}, deleted))


class _Pages:
    """What continue tokens stand for: the rest of a list, as it was when its first page was read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rests: OrderedDict[str, tuple[list[StoredObject], int]] = OrderedDict()

    def keep(self, objects: list[StoredObject], version: int) -> str:
        token = base64.urlsafe_b64encode(secrets.token_bytes(18)).decode()
        with self._lock:
            self._rests[token] = (objects, version)
            while len(self._rests) > _PAGES:
                self._rests.popitem(last=False)
        return token

    def rest(self, token: str) -> tuple[list[StoredObject], int]:
        try:
            base64.urlsafe_b64decode(token)
        except (ValueError, binascii.Error):
            raise statuses.bad_request("continue key is not valid") from None
        with self._lock:
            rest = self._rests.get(token)
        if rest is None:
            raise statuses.expired("The provided continue parameter is too old to display a consistent list result")
        return rest


# -- from the request


def _selector(info: RequestInfo, resource: ResourceType) -> ObjectSelector:
    fields = f"metadata.name={info.name}" if info.name else info.query.get("fieldSelector", "")
    labels = info.query.get("labelSelector", "")
    return selectors.parse(resource, namespace=info.namespace, fields=fields, labels=labels)


def _dry_run(info: RequestInfo) -> bool:
    return info.query.get("dryRun", "") == "All"


def _options(request: ReceivedRequest, fields: FieldValidation) -> WriteOptions:
    manager = request.info.query.get("fieldManager") or request.user_agent.partition("/")[0]
    return WriteOptions(manager, request.info.subresource, _dry_run(request.info), unknown=fields.unknown)


def _object(request: ReceivedRequest) -> JSON:
    match request.content_type or JSON_TYPE:
        case "application/json":
            sent = _json(request.body, dict, "a JSON object")
            return _without_nulls(sent) if b"null" in request.body else sent
        case "application/yaml":
            return _without_nulls(_yaml_object(request.body))
        case protobuf.MEDIA_TYPE:
            try:
                return protobuf.decode(request.body)
            except ValueError as error:
                raise statuses.bad_request(f"the body is not an object in protobuf: {error}") from None
        case _:
            raise statuses.unsupported_media_type([JSON_TYPE, YAML_TYPE, protobuf.MEDIA_TYPE])


def _patch(request: ReceivedRequest) -> JSON | list[JSON]:
    if request.content_type == patching.JSON_PATCH:
        return _json(request.body, list, "a list of JSON patch operations")
    return _json(request.body, dict, "a JSON object")


def _json(body: bytes, kind: type[T], what: str) -> T:
    try:
        value = json.loads(body)
    except ValueError as error:
        raise statuses.bad_request(f"the body is not JSON: {error}") from None
    if not isinstance(value, kind):
        raise statuses.bad_request(f"the body is not {what}")
    return value


def _yaml_object(body: bytes) -> JSON:
    # Most clients send JSON here. It is YAML too, but a hundred times slower to parse as YAML.
    try:
        obj = json.loads(body)
    except ValueError:
        try:
            obj = yaml.safe_load(body)
        except yaml.YAMLError as error:
            raise statuses.bad_request(f"error decoding YAML: {error}") from None
    if not isinstance(obj, dict):
        raise statuses.bad_request("the body is not an object")
    return obj


def _without_nulls(obj: JSON) -> JSON:
    return {
        key: value if key in _FREE_FORM else _without_nulls_in(value) for key, value in obj.items() if value is not None
    }


def _without_nulls_in(value: Any) -> Any:
    if isinstance(value, dict):
        return _without_nulls(value)
    return [_without_nulls_in(item) for item in value] if isinstance(value, list) else value


# -- to the answer


def _list_body(resource: ResourceType, metadata: JSON, objects: list[StoredObject]) -> bytes:
    head = {"kind": f"{resource.kind}List", "apiVersion": resource.api_version, "metadata": metadata}
    return json.dumps(head)[:-1].encode() + b',"items":[' + b",".join(stored.item for stored in objects) + b"]}"


def _table_body(resource: ResourceType, metadata: JSON, objects: list[StoredObject]) -> bytes:
    """Return what a server prints of objects; without the objects themselves, for `includeObject=None`."""
    table = {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [{"name": name, "type": "string"} for name, _ in resource.columns],
        "rows": [
            {"cells": [selectors.field_text(stored.object, path) for _, path in resource.columns], "object": None}
            for stored in objects
        ],
    }
    return json.dumps(table).encode()
