"""Pods, claims and classes for the cluster tests, as objects."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]
ADMINS = "admins"
"""The namespace of every cluster of these tests in which admin access is allowed."""
# Not `env`: a shell drops variables whose names are not identifiers, and a claim's UID has dashes.
SHOW = "cat /proc/1/environ; echo; echo done; trap 'exit 0' TERM; sleep 3600 & wait"
SHORT = "true"
STUBBORN = "trap 'echo asked to end' TERM; echo done; while true; do sleep 1; done"


def admin_namespace(name: str) -> JSON:
    """Returns a namespace in which admin access is allowed."""
    labels = {"resource.kubernetes.io/admin-access": "true"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def device_class(name: str, driver: str, condition: str = "true") -> JSON:
    selector = {"cel": {"expression": f'device.driver == "{driver}" && {condition}'}}
    return {**_head("DeviceClass", name), "spec": {"selectors": [selector]}}


def request(name: str, device_class: str, **exactly: Any) -> JSON:
    return {"name": name, "exactly": {"deviceClassName": device_class, **exactly}}


def first_available(name: str, **alternatives: JSON) -> JSON:
    """Returns a request with alternatives, the preferred one first: name of the subrequest → its other fields."""
    return {"name": name, "firstAvailable": [{"name": key, **value} for key, value in alternatives.items()]}


def where(expression: str) -> JSON:
    """Returns the fields that narrow a request to some devices."""
    return {"selectors": [{"cel": {"expression": expression}}]}


def config(driver: str, parameters: JSON, *requests: str) -> JSON:
    return {"requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}


def lamp(brightness: int, *requests: str, driver: str = "lamps.example.com") -> JSON:
    parameters = {"apiVersion": "lamps.example.com/v1", "kind": "LampConfig", "brightness": brightness}
    return config(driver, parameters, *requests)


def claim(name: str, requests: list[JSON], configs: list[JSON] | None = None) -> JSON:
    spec = {"devices": {"requests": requests, "config": configs or []}}
    return {**_head("ResourceClaim", name), "spec": spec}


def template(name: str, requests: list[JSON], configs: list[JSON] | None = None) -> JSON:
    made = claim(name, requests, configs)
    return {**made, "kind": "ResourceClaimTemplate", "spec": {"spec": made["spec"]}}


def container(name: str, *uses: JSON, command: str = SHOW) -> JSON:
    return {
        "name": name,
        "image": "localhost/busybox:1",
        "command": ["sh", "-c", command],
        "resources": {"claims": list(uses)},
    }


def pod(name: str, claims: list[JSON], *containers: JSON, grace: int = 1) -> JSON:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": grace,
            "restartPolicy": "Never",
            "resourceClaims": claims,
            "containers": list(containers),
        },
    }


def pod_with(name: str, *claims: JSON, command: str = SHOW, grace: int = 1) -> JSON:
    """Returns a pod with one container, `main`, that uses these claims or templates, which are whole objects."""
    uses = [
        {"name": f"use-{place}", _REFERENCES[each["kind"]]: each["metadata"]["name"]}
        for place, each in enumerate(claims)
    ]
    return pod(name, uses, container("main", *({"name": use["name"]} for use in uses), command=command), grace=grace)


_REFERENCES = {"ResourceClaim": "resourceClaimName", "ResourceClaimTemplate": "resourceClaimTemplateName"}


def _head(kind: str, name: str) -> JSON:
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
