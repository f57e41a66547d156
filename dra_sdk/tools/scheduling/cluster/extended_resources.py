"""The claim that the scheduler makes for extended resources that a DeviceClass provides.

A container requests `nvidia.com/gpu: 2`, or `deviceclass.resource.kubernetes.io/<class>: 2`. If no device plugin of the
node offers the resource, the scheduler requests two devices of the class that has it as `extendedResourceName`.
Source: KEP-5004; scheduler plugin DynamicResources, extended resources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.features import UP_TO_1_36, ReleaseBehaviour
from dra_sdk.tools.scheduling.cluster.claim_controller import EXTENDED_CLAIM_ANNOTATION
from dra_sdk.tools.scheduling.cluster.core_v1 import Container, Pod
from dra_sdk.tools.scheduling.cluster.generated_claims import claim_made_for

IMPLICIT_RESOURCE_PREFIX: Final = "deviceclass.resource.kubernetes.io/"


@dataclass(slots=True)
class _ContainerRequest:
    name: str
    count: int


def classes_by_resource(classes: Iterable[JSON], behaviour: ReleaseBehaviour = UP_TO_1_36) -> dict[str, str]:
    """Return the class for each extended resource: the youngest, and of equally old ones the first by name.

    The scheduler forgets the implicit name of a class that loses its extended resource to an equally old one; in 1.34,
    a class with an extended resource has none. Source: k8s.io/dynamic-resource-allocation,
    deviceclass/extendedresourcecache; scheduler plugin DynamicResources 1.34, package extended.
    """
    class_names: dict[str, str] = {}
    created: dict[str, str] = {}
    by_name = sorted(classes, key=lambda device_class: device_class["metadata"]["name"], reverse=True)
    for device_class in sorted(by_name, key=_created):
        name = device_class["metadata"]["name"]
        resource = device_class["spec"].get("extendedResourceName")
        if not resource or not behaviour.extended_resources_of_1_34:
            class_names[IMPLICIT_RESOURCE_PREFIX + name] = name
        if resource:
            if resource in class_names and created[class_names[resource]] == _created(device_class):
                class_names.pop(IMPLICIT_RESOURCE_PREFIX + class_names[resource], None)
            class_names[resource], created[name] = name, _created(device_class)
    return class_names


def _created(obj: JSON) -> str:
    return str(obj["metadata"].get("creationTimestamp") or "")


def extended_resource_claim(
    pod: Pod, resources: Mapping[str, str], behaviour: ReleaseBehaviour = UP_TO_1_36
) -> tuple[JSON, list[JSON]]:
    """Return the claim for `resources` (name → class) of a pod, and which request serves which container."""
    requests: list[_ContainerRequest] = []
    classes: dict[str, str] = {}
    mappings: list[JSON] = []
    requests_for = _unshared_requests if behaviour.extended_resources_of_1_34 else _requests_for
    for resource in sorted(resources):
        of_resource, new_mappings = requests_for(pod, resource)
        requests += of_resource
        classes |= {request.name: resources[resource] for request in of_resource}
        mappings += new_mappings
    requests.sort(key=lambda request: request.name)
    spec = {"devices": {"requests": [_device_request(request, classes[request.name]) for request in requests]}}
    base = f"{pod.metadata.name}-extended-resources-"
    return claim_made_for(pod, base, {EXTENDED_CLAIM_ANNOTATION: "true"}, spec), mappings


def _device_request(request: _ContainerRequest, class_name: str) -> JSON:
    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": request.count}
    return {"name": request.name, "exactly": exactly}


def _unshared_requests(pod: Pod, resource: str) -> tuple[list[_ContainerRequest], list[JSON]]:
    """Return a request and a mapping for each container, as in 1.34."""
    wanted = [
        (container, _ContainerRequest(_request_name(index, container, resource), count))
        for index, container in enumerate([*pod.spec.init_containers, *pod.spec.containers])
        if (count := _requested_count(container, resource))
    ]
    mappings = [_mapping(container, resource, request.name) for container, request in wanted]
    return [request for _, request in wanted], mappings


def _requests_for(pod: Pod, resource: str) -> tuple[list[_ContainerRequest], list[JSON]]:
    """Return requests and mappings for one resource.

    Containers and sidecars have a request each. Other init containers use the devices of later containers first. For
    those that need more, there is one request, which is for the container that needs most and which they all use.
    """
    containers = [*pod.spec.init_containers, *pod.spec.containers]
    long_running: list[_ContainerRequest | None] = [None] * len(containers)
    mappings, init_mappings, extra = [], [], []
    init_count = len(pod.spec.init_containers)
    is_init = [index < init_count and not container.is_sidecar for index, container in enumerate(containers)]
    for index, container in enumerate(containers):
        if not is_init[index] and (count := _requested_count(container, resource)):
            request = long_running[index] = _ContainerRequest(_request_name(index, container, resource), count)
            mappings.append(_mapping(container, resource, request.name))
    for index, container in enumerate(containers):
        if is_init[index] and (count := _requested_count(container, resource)):
            reused, missing = _reusable_requests(long_running[index:], count)
            init_mappings += [_mapping(container, resource, reusable.name) for reusable in reused]
            if missing:
                request = _ContainerRequest(_request_name(index, container, resource), missing)
                extra.append(request)
                init_mappings.append(_mapping(container, resource, request.name))
    largest = [max(extra, key=lambda request: request.count)] if extra else []
    for mapping in init_mappings:
        if any(mapping["requestName"] == missed.name for missed in extra):
            mapping["requestName"] = largest[0].name
    return [*largest, *filter(None, long_running)], mappings + init_mappings


def _reusable_requests(requests: Sequence[_ContainerRequest | None], count: int) -> tuple[list[_ContainerRequest], int]:
    """Return the later requests that an init container uses, and how many devices it still needs."""
    reused = []
    for request in requests:
        if count > 0 and request is not None:
            reused.append(request)
            count -= request.count
    return reused, max(0, count)


def _requested_count(container: Container, resource: str) -> int:
    wanted = container.resources.effective_requests
    return int(wanted[resource]) if resource in wanted else 0


def _request_name(index: int, container: Container, resource: str) -> str:
    """Return `container-<index>-request-<index of the resource by name>`."""
    return f"container-{index}-request-{sorted(container.resources.effective_requests).index(resource)}"


def _mapping(container: Container, resource: str, request: str) -> JSON:
    return {"containerName": container.name, "resourceName": resource, "requestName": request}
