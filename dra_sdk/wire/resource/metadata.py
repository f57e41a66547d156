"""The types of meta/v1 and core/v1 that resource.k8s.io objects contain."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from dra_sdk.wire.resource.base import Int64, Object, TextItem, Timestamp


class OwnerReference(Object):
    """meta/v1 OwnerReference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None


class ObjectMeta(Object):
    """meta/v1 ObjectMeta."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    self_link: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int64 = 0
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    deletion_grace_period_seconds: Int64 | None = None
    labels: dict[str, TextItem] | None = None
    annotations: dict[str, TextItem] | None = None
    owner_references: list[OwnerReference] | None = None
    finalizers: list[TextItem] | None = None
    managed_fields: list[dict[str, Any]] | None = None


class TopLevel(Object):
    """The fields of every object with a kind."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = Field(default_factory=ObjectMeta)


class Condition(Object):
    """meta/v1 Condition."""

    type: str = ""
    status: str = ""
    observed_generation: Int64 = 0
    last_transition_time: Timestamp | None = None
    reason: str = ""
    message: str = ""


class NodeSelectorRequirement(Object):
    """core/v1 NodeSelectorRequirement."""

    key: str = ""
    operator: str = ""
    values: list[TextItem] | None = None


class NodeSelectorTerm(Object):
    """core/v1 NodeSelectorTerm: requirements that must all hold."""

    match_expressions: list[NodeSelectorRequirement] | None = None
    match_fields: list[NodeSelectorRequirement] | None = None


class NodeSelector(Object):
    """core/v1 NodeSelector: terms of which one must hold."""

    node_selector_terms: list[NodeSelectorTerm] | None = None
