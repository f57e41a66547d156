"""A step of what the SDK does for the kubelet or the container runtime, as extensions see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Step:
    """One step. Steps are nested: that of a call contains those of its claims.

    driver: the driver's name.
    name: what is done: the kubelet's method, such as `NodePrepareResources`; `prepare` or `unprepare` of one claim;
        `read claim`; a hook, such as `dra_prepare`; `write CDI spec`; `write state file`.
    attributes: of whom: `claim` (namespace/name) and `uid` for a claim; nothing for its inner steps.
    metadata: what came with a call of the kubelet: the headers of the gRPC call, names in lower case.
    """

    driver: str
    name: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
