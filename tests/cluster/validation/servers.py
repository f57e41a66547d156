"""Both servers: whether each accepts an object, without storing it."""

from __future__ import annotations

import copy
from http import HTTPStatus
from typing import Final

from dra_sdk.tools.simulator.objects import ObjectStore, WriteOptions
from dra_sdk.tools.simulator.resources import ResourceType, server_catalog
from dra_sdk.tools.simulator.statuses import StatusError, bad_request
from dra_sdk.tools.simulator.strategy import Strategy
from dra_sdk.wire.profile import ServerProfile
from tests.cluster.differential.api import Refusal, Requests, collection, refusal
from tests.cluster.differential.case import JSON
from tests.cluster.differential.real import namespaces
from tests.cluster.harness.api import Api
from tests.cluster.harness.errors import HarnessError

_TRY: Final = "dryRun=All&fieldValidation=Strict"
_TAKEN: Final = (HTTPStatus.OK, HTTPStatus.CREATED)
_ATTEMPTS: Final = 5
_NODE_FEATURES: Final = ["DRANodeAllocatableResources"]
_NODE: Final = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}


class RealServer(Requests):
    """A real API server; `stored` has the objects that can be updated."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self.stored: dict[tuple[str, str], JSON] = {}
        for each in (*namespaces(), _NODE):
            self.create(each)
        # 1.37 admits a slice with nodeAllocatableResources only if its node knows them: more than the object says.
        self.patch("Node", None, "node-1", {"status": {"declaredFeatures": _NODE_FEATURES}}, status=True)

    def store(self, obj: JSON) -> None:
        """Creates and stores an object, with its status."""
        made = self.create(obj)
        assert not isinstance(made, Refusal), made.message
        if "status" in obj:
            path = f"{_path(obj)}/{obj['metadata']['name']}/status"
            code, made = self.send("PUT", path, {**made, "status": obj["status"]})
            assert code in _TAKEN, made
        self.stored[obj["kind"], obj["metadata"]["name"]] = made

    def try_create(self, obj: JSON) -> JSON | Refusal:
        """Returns what a create would do."""
        return self._answer("POST", f"{_path(obj)}?{_TRY}", obj)

    def try_update(self, obj: JSON, subresource: str) -> JSON | Refusal:
        """Returns what an update would do."""
        name = obj["metadata"]["name"]
        stored = self.stored[obj["kind"], name]["metadata"]
        sent = {**obj, "metadata": {**obj["metadata"], "resourceVersion": stored["resourceVersion"]}}
        return self._answer("PUT", "/".join(filter(None, (_path(obj), name, subresource))) + f"?{_TRY}", sent)

    def _answer(self, method: str, path: str, obj: JSON) -> JSON | Refusal:
        for _ in range(_ATTEMPTS):
            code, said = self.send(method, path, obj)
            if code != HTTPStatus.GATEWAY_TIMEOUT:  # the machine is busy
                break
        if code in _TAKEN:
            return said
        if code in {400, 403, 404, 409, 422, 500}:
            return refusal(said)
        raise HarnessError(f"{method} {path} answered {code}: {said.get('message', said)}\n{obj}")


class OurServer:
    """The simulator's store, with the validation of this package."""

    def __init__(self, profile: ServerProfile) -> None:
        self._store = ObjectStore(server_catalog(profile))
        Strategy(self._store, profile).install()
        for each in namespaces():
            self._store.create(self._store.catalog["namespaces"], copy.deepcopy(each))

    def store(self, obj: JSON) -> None:
        """Creates and stores an object, with its status."""
        resource, namespace = self._of(obj)
        made = self._store.create(resource, copy.deepcopy(obj), namespace, options=WriteOptions(unknown=_refuse)).copy()
        if "status" in obj:
            made["status"] = copy.deepcopy(obj["status"])
            self._store.update(resource, made, namespace, options=WriteOptions(subresource="status", unknown=_refuse))

    def try_create(self, obj: JSON) -> JSON | Refusal:
        """Returns what a create would do."""
        resource, namespace = self._of(obj)
        try:
            made = self._store.create(
                resource, copy.deepcopy(obj), namespace, options=WriteOptions(dry_run=True, unknown=_refuse)
            )
        except StatusError as error:
            return refusal(error.status)
        return made.copy()

    def try_update(self, obj: JSON, subresource: str) -> JSON | Refusal:
        """Returns what an update would do."""
        resource, namespace = self._of(obj)
        name = obj["metadata"]["name"]
        version = self._store.get(resource, name, namespace).object["metadata"]["resourceVersion"]
        sent = copy.deepcopy(obj)
        sent["metadata"]["resourceVersion"] = version
        try:
            options = WriteOptions(subresource=subresource, dry_run=True, unknown=_refuse)
            made = self._store.update(resource, sent, namespace, name=name, options=options)
        except StatusError as error:
            return refusal(error.status)
        return made.copy()

    def _of(self, obj: JSON) -> tuple[ResourceType, str]:
        group, _, version = obj["apiVersion"].rpartition("/")
        plural = collection(obj["kind"]).rpartition("/")[2]
        found = self._store.catalog.find(group, version, plural) or self._store.catalog[plural]
        obj["apiVersion"] = found.api_version
        return found, obj["metadata"].get("namespace", "")


def _path(obj: JSON) -> str:
    return collection(obj["kind"], obj["metadata"].get("namespace"))


def _refuse(paths: list[str]) -> None:
    raise bad_request(f"unknown fields {', '.join(paths)}")
