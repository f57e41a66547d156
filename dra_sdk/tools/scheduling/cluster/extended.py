"""Extended resources that devices stand behind: the claim that the scheduler makes for them.

A container asks for `nvidia.com/gpu: 2`, or `deviceclass.resource.kubernetes.io/<class>: 2`; where no device plugin of
the node offers that, the scheduler asks for two devices of the class whose `extendedResourceName` it is. Source:
KEP-5004; scheduler plugin DynamicResources, extended resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.amounts import is_sidecar
from dra_sdk.tools.scheduling.cluster.claims import EXTENDED_CLAIM, owner_reference
from dra_sdk.tools.scheduling.cluster.core import Container, Pod
from dra_sdk.tools.scheduling.cluster.names import generated_name, generated_uid

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"


@dataclass(slots=True)
class _Request:
    name: str
    count: int


def classes_of_resources(classes: Iterable[JSON]) -> dict[str, str]:
    """The class behind each extended resource. Of several classes the youngest counts, then the first by name."""
    found = {}
    by_name = sorted(classes, key=lambda each: each["metadata"]["name"], reverse=True)
    for each in sorted(by_name, key=lambda each: each["metadata"].get("creationTimestamp") or ""):
        name = each["metadata"]["name"]
        found[IMPLICIT + name] = name
        if resource := each["spec"].get("extendedResourceName"):
            found[resource] = name
    return found


def extended_claim(pod: Pod, resources: Mapping[str, str]) -> tuple[JSON, list[JSON]]:
    """The claim for `resources` (name → class) of a pod, and which request serves which resource of which container."""
    requests: list[_Request] = []
    classes: dict[str, str] = {}
    mappings: list[JSON] = []
    for resource in sorted(resources):
        made, served = _of_resource(pod, resource)
        requests += made
        classes |= {each.name: resources[resource] for each in made}
        mappings += served
    requests.sort(key=lambda each: each.name)
    base = f"{pod.metadata.name}-extended-resources-"
    namespace = pod.metadata.namespace
    name = generated_name(base, namespace, pod.metadata.uid)
    metadata = {
        "name": name,
        "generateName": base,
        "namespace": namespace,
        "uid": generated_uid("ResourceClaim", (namespace, name), pod.metadata.uid),
        "annotations": {EXTENDED_CLAIM: "true"},
        "ownerReferences": [owner_reference(pod)],
    }
    devices = {"requests": [_device_request(each, classes[each.name]) for each in requests]}
    spec = {"devices": devices}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "spec": spec}, mappings


def _device_request(request: _Request, class_name: str) -> JSON:
    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": request.count}
    return {"name": request.name, "exactly": exactly}


def _of_resource(pod: Pod, resource: str) -> tuple[list[_Request], list[JSON]]:
    """Requests and mappings of one resource.

    Containers that run side by side each have a request. An init container that ends before them first takes what
    later containers will have, and only more than that is asked for: once, for the one that needs most.
    """
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    lasting: list[_Request | None] = [None] * len(containers)
    mappings, short_mappings, short = [], [], []
    is_short = [index < len(pod.spec.init_containers) and not is_sidecar(each) for index, each in enumerate(containers)]
    for index, container in enumerate(containers):
        if not is_short[index] and (count := _count(container, resource)):
            request = lasting[index] = _Request(_name(index, container, resource), count)
            mappings.append(_mapping(container, resource, request.name))
    for index, container in enumerate(containers):
        if is_short[index] and (count := _count(container, resource)):
            reused, missing = _reused(lasting[index:], count)
            short_mappings += [_mapping(container, resource, each.name) for each in reused]
            if missing:
                request = _Request(_name(index, container, resource), missing)
                short.append(request)
                short_mappings.append(_mapping(container, resource, request.name))
    largest = list(_largest(short))
    for mapping in short_mappings:
        if any(mapping["requestName"] == each.name for each in short):
            mapping["requestName"] = largest[0].name
    return [*largest, *filter(None, lasting)], mappings + short_mappings


def _reused(requests: Sequence[_Request | None], count: int) -> tuple[list[_Request], int]:
    """Which of the later containers' requests an init container uses, and how many devices that leaves it short."""
    reused = []
    for each in requests:
        if count > 0 and each is not None:
            reused.append(each)
            count -= each.count
    return reused, max(0, count)


def _largest(requests: Sequence[_Request]) -> Iterator[_Request]:
    if requests:
        yield max(requests, key=lambda each: each.count)


def _count(container: Container, resource: str) -> int:
    wanted = container.resources.wanted
    return int(wanted[resource]) if resource in wanted else 0


def _name(index: int, container: Container, resource: str) -> str:
    """`container-<which>-request-<which of its resources, by name>`."""
    return f"container-{index}-request-{sorted(container.resources.wanted).index(resource)}"


def _mapping(container: Container, resource: str, request: str) -> JSON:
    return {"containerName": container.name, "resourceName": resource, "requestName": request}
