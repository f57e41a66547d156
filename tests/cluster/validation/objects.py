"""Valid objects, which together use every field of the API."""

from __future__ import annotations

from typing import Any, Final

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.slice import is_list
from tests.cluster.differential.case import ADMIN

JSON = dict[str, Any]
DRIVER: Final = "lamps.example.com"
NAME: Final = "subject"
_V1: Final = "resource.k8s.io/v1"
_OWNER: Final = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "u-1", "controller": True}


def good_objects(profile: ServerProfile) -> dict[str, list[JSON]]:
    """Returns an object of each kind, with the fields of a release; no attribute lists if it would drop them."""
    minor = profile.minor
    found = {
        "ResourceSlice": [*_slices(), *(_newer_slices() if minor >= 37 else _older_slices() if minor == 36 else [])],
        "ResourceClaim": [_claim(minor)],
        "ResourceClaimTemplate": [_template(minor)],
        "DeviceClass": [_device_class()],
    }
    if not profile.enabled("DRAListTypeAttributes"):
        for device in found["ResourceSlice"][0]["spec"]["devices"]:
            device["attributes"] = {key: each for key, each in device["attributes"].items() if not is_list(each)}
    if minor >= 36 and profile.applies_taint_rules:
        found["DeviceTaintRule"] = [_taint_rule()]
    return found


def allocated_claim(profile: ServerProfile) -> JSON:
    """Returns a claim with a status that uses every field."""
    return {**_claim(profile.minor), "status": _status()}


def _slice(**spec: Any) -> JSON:
    metadata = {"name": NAME, "labels": {"a": "b"}, "annotations": {"c/d": "e"}, "ownerReferences": [_OWNER]}
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": _V1,
        "kind": "ResourceSlice",
        "metadata": metadata,
        "spec": {"driver": DRIVER, "pool": pool, "nodeName": "node-1", **spec},
    }


def _slices() -> list[JSON]:
    by_term = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a/b", "operator": "In", "values": ["c"]}]}]}
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
    for_each = _slice(
        perDeviceNodeSelection=True,
        devices=[
            {"name": "near", "nodeName": "node-1"},
            {"name": "far", "nodeSelector": {"nodeSelectorTerms": [by_name]}},
            {"name": "everywhere", "allNodes": True},
        ],
    )
    del for_each["spec"]["nodeName"]
    somewhere = _slice(nodeSelector=by_term, devices=[{"name": "lamp-0"}])
    del somewhere["spec"]["nodeName"]
    counters = [{"name": f"fuse-{index}", "counters": {"amps": {"value": "16"}}} for index in range(2)]
    everywhere = _slice(allNodes=True, sharedCounters=counters)
    del everywhere["spec"]["nodeName"]
    return [_slice(devices=[_shared_lamp(), _plain_lamp()]), for_each, somewhere, everywhere]


def _plain_lamp() -> JSON:
    values = [
        {"value": "10Ki"},
        {"value": "4", "requestPolicy": {"default": "1", "validValues": ["1", "2", "4"]}},
    ]
    return {
        "name": "lamp-1",
        "attributes": {"watts": {"int": 3}, f"{DRIVER}/rev": {"version": "1.2.3"}, "many": {"ints": [1, 2]}},
        "capacity": dict(zip(("light", f"{DRIVER}/heat"), values, strict=True)),
        "allowMultipleAllocations": True,
        "consumesCounters": [{"counterSet": "fuse-0", "counters": {"amps": {"value": "1500m"}}}],
    }


def _shared_lamp() -> JSON:
    span = {"min": "1Ki", "max": "4Ki", "step": "1Ki"}
    return {
        "name": "lamp-0",
        "attributes": {
            "colour": {"string": "red"},
            "dim": {"bool": True},
            "bulbs": {"strings": ["a", "b"]},
            "revs": {"versions": ["1.0.0"]},
            "on": {"bools": [True, False]},
        },
        "capacity": {"light": {"value": "10Ki", "requestPolicy": {"default": "1Ki", "validRange": span}}},
        "taints": [{"key": "a/b", "value": "c", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
        "bindsToNode": True,
        "bindingConditions": ["Ready"],
        "bindingFailureConditions": ["Failed"],
        "allowMultipleAllocations": True,
    }


def _older_slices() -> list[JSON]:
    mapped = {
        "name": "lamp-0",
        "capacity": {"heat": {"value": "4"}},
        "nodeAllocatableResourceMappings": {"cpu": {"capacityKey": "heat", "allocationMultiplier": "2"}},
    }
    return [_slice(devices=[mapped])]


def _newer_slices() -> list[JSON]:
    resources = {
        "cpu": {"mapping": {"capacityKey": "heat", "capacityMultiplier": "2"}, "overhead": {"perPod": "1"}},
        "memory": {"mapping": {"deviceMultiplier": "1Gi"}},
    }
    mapped = {"name": "lamp-0", "capacity": {"heat": {"value": "4"}}, "nodeAllocatableResources": resources}
    taken = {"counterSet": "fuse-0", "counters": {"amps": {"value": "1"}}, "compatibilityGroups": ["g-1", "g-2"]}
    part = {"name": "lamp-0", "attributes": {"size": {"string": "s"}}, "consumesCounters": [taken]}
    operations = ["NodePrepareResources", "NodeUnprepareResources"]
    return [
        _slice(devices=[mapped], skipNodeOperations=operations),
        _slice(devices=[part], partitionTypeAttribute=f"{DRIVER}/size"),
    ]


def _claim_spec(minor: int) -> JSON:
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    toleration = {"key": "a/b", "operator": "Equal", "value": "c", "effect": "NoExecute", "tolerationSeconds": 3}
    wanted = {"deviceClassName": "lamp", "selectors": [selector], "capacity": {"requests": {"light": "1Ki"}}}
    first: JSON = {**wanted, "allocationMode": "ExactCount", "count": 2, "tolerations": [toleration]}
    if minor >= 37:
        first["derivedAttributes"] = [{"name": f"{DRIVER}/colour", "expression": '"red"'}]
    requests = [
        {"name": "r", "exactly": first},
        {"name": "admin", "exactly": {"deviceClassName": "lamp", "allocationMode": "All", "adminAccess": True}},
        {
            "name": "s",
            "firstAvailable": [
                {"name": "big", **wanted, "allocationMode": "All"},
                {"name": "small", **wanted, "count": 1, "tolerations": [{"operator": "Exists"}]},
            ],
        },
    ]
    constraints = [
        {"requests": ["r", "s"], "matchAttribute": f"{DRIVER}/colour"},
        {"requests": ["s/big"], "distinctAttribute": f"{DRIVER}/watts"},
    ]
    opaque = {"driver": DRIVER, "parameters": {"apiVersion": f"{DRIVER}/v1", "kind": "Lamp", "brightness": 3}}
    config = [{"requests": ["r", "s/small"], "opaque": opaque}, {"opaque": opaque}]
    return {"devices": {"requests": requests, "constraints": constraints, "config": config}}


def _claim(minor: int) -> JSON:
    metadata = {"name": NAME, "namespace": ADMIN, "finalizers": ["example.com/keep"]}
    return {"apiVersion": _V1, "kind": "ResourceClaim", "metadata": metadata, "spec": _claim_spec(minor)}


def _template(minor: int) -> JSON:
    inner = {"metadata": {"labels": {"a": "b"}, "annotations": {"c/d": "e"}}, "spec": _claim_spec(minor)}
    metadata = {"name": NAME, "namespace": ADMIN}
    return {"apiVersion": _V1, "kind": "ResourceClaimTemplate", "metadata": metadata, "spec": inner}


def _device_class() -> JSON:
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}, {"cel": {"expression": "true"}}]
    config = [{"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}]
    return {
        "apiVersion": _V1,
        "kind": "DeviceClass",
        "metadata": {"name": NAME},
        "spec": {"selectors": selectors, "config": config, "extendedResourceName": "example.com/lamp"},
    }


def _taint_rule() -> JSON:
    taint = {"key": "a/b", "value": "c", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
    return {
        "apiVersion": "resource.k8s.io/v1beta2",
        "kind": "DeviceTaintRule",
        "metadata": {"name": NAME},
        "spec": {"deviceSelector": {"driver": DRIVER, "pool": "node-1", "device": "lamp-0"}, "taint": taint},
    }


def _status() -> JSON:
    device = {"driver": DRIVER, "pool": "node-1", "device": "lamp-0"}
    share = "0a1b2c3d-0000-4000-8000-000000000001"
    toleration = {"key": "a/b", "operator": "Equal", "value": "c", "effect": "NoExecute"}
    results = [
        {"request": "r", **device, "bindingConditions": ["Ready"], "bindingFailureConditions": ["Failed"]},
        {"request": "admin", **device, "adminAccess": True, "tolerations": [toleration]},
        {"request": "s/small", **device, "shareID": share, "consumedCapacity": {"light": "1Ki"}},
    ]
    parameters = {"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}
    config = [{"source": "FromClass", "requests": ["r"], **parameters}, {"source": "FromClaim", **parameters}]
    by_name = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    when = "2026-01-01T00:00:00Z"
    condition = {"type": "Ready", "status": "True", "reason": "On", "message": "m", "lastTransitionTime": when}
    network = {"interfaceName": "eth1", "ips": ["10.9.8.7/24", "2001:db8::1/64"], "hardwareAddress": "00:01"}
    users = [{"resource": "pods", "name": f"p-{index}", "uid": f"u-{index}"} for index in range(2)]
    return {
        "allocation": {
            "devices": {"results": results, "config": config},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [by_name]}]},
        },
        "reservedFor": users,
        "devices": [
            {**device, "conditions": [condition], "data": {"a": [1]}, "networkData": network},
            {**device, "shareID": share, "conditions": [{**condition, "observedGeneration": 1}]},
        ],
    }
