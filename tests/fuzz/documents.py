"""Valid documents. The fuzz tests begin with them."""

from __future__ import annotations

from typing import Any

DRIVER = "lamps.example.com"
UID = "0a1b2c3d-0000-4000-8000-000000000001"

CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"namespace": "default", "name": "claim", "uid": UID, "annotations": {"a": "b"}},
    "spec": {
        "devices": {
            "requests": [
                {"name": "r", "exactly": {"deviceClassName": "lamp", "allocationMode": "ExactCount", "count": 2}},
                {
                    "name": "s",
                    "firstAvailable": [
                        {
                            "name": "t",
                            "deviceClassName": "lamp",
                            "selectors": [{"cel": {"expression": "true"}}],
                            "capacity": {"requests": {"light": "1Ki"}},
                            "tolerations": [{"key": "a/b", "operator": "Exists", "effect": "NoExecute"}],
                        }
                    ],
                },
            ],
            "constraints": [{"requests": ["r"], "matchAttribute": "lamps.example.com/colour"}],
            "config": [
                {
                    "requests": ["r"],
                    "opaque": {"driver": DRIVER, "parameters": {"apiVersion": "lamps.example.com/v1", "kind": "Lamp"}},
                }
            ],
        }
    },
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "r", "driver": DRIVER, "pool": "node-1", "device": "lamp-0", "adminAccess": True},
                    {
                        "request": "s/t",
                        "driver": DRIVER,
                        "pool": "node-1",
                        "device": "lamp-1",
                        "shareID": UID,
                        "consumedCapacity": {"light": "1Ki"},
                    },
                ],
                "config": [
                    {
                        "source": "FromClass",
                        "requests": ["r", "s/t"],
                        "opaque": {
                            "driver": DRIVER,
                            "parameters": {"apiVersion": "lamps.example.com/v1", "kind": "Lamp", "brightness": 3},
                        },
                    },
                    {
                        "source": "FromClaim",
                        "opaque": {
                            "driver": DRIVER,
                            "parameters": {
                                "apiVersion": "lamps.example.com/v1",
                                "kind": "Lamp",
                                "colours": [{"name": "red", "share": "500m"}, {"name": "blue", "share": 2}],
                                "since": "2026-01-01T00:00:00Z",
                                "labels": {"room": "hall"},
                                "mode": "fast",
                            },
                        },
                    },
                ],
            },
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
                ]
            },
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": UID}],
        "devices": [
            {
                "driver": DRIVER,
                "pool": "node-1",
                "device": "lamp-0",
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "reason": "On",
                        "message": "",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }
                ],
                "networkData": {
                    "interfaceName": "eth1",
                    "ips": ["10.9.8.7/24"],
                    "hardwareAddress": "00:00:00:00:00:01",
                },
            }
        ],
    },
}

SLICE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "slice", "labels": {"a": "b"}},
    "spec": {
        "driver": DRIVER,
        "nodeName": "node-1",
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1},
        "devices": [
            {
                "name": "lamp-0",
                "attributes": {
                    "colour": {"string": "red"},
                    "watts": {"int": 3},
                    "dim": {"bool": True},
                    "rev": {"version": "1.2.3"},
                },
                "capacity": {
                    "light": {
                        "value": "10Ki",
                        "requestPolicy": {"default": "1Ki", "validRange": {"min": "1Ki", "max": "4Ki", "step": "1Ki"}},
                    }
                },
                "consumesCounters": [{"counterSet": "fuse", "counters": {"amps": {"value": "1"}}}],
                "taints": [{"key": "a/b", "value": "c", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
                "bindsToNode": True,
                "bindingConditions": ["Ready"],
                "bindingFailureConditions": ["Failed"],
                "allowMultipleAllocations": True,
            }
        ],
    },
}

CLASS: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "lamp"},
    "spec": {
        "selectors": [{"cel": {"expression": 'device.driver == "lamps.example.com"'}}],
        "config": [{"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}],
        "extendedResourceName": "example.com/lamp",
    },
}

TEMPLATE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "template", "namespace": "default"},
    "spec": {"metadata": {"labels": {"a": "b"}}, "spec": CLAIM["spec"]},
}

TAINT_RULE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1beta2",
    "kind": "DeviceTaintRule",
    "metadata": {"name": "rule"},
    "spec": {
        "deviceSelector": {"driver": DRIVER, "pool": "node-1", "device": "lamp-0"},
        "taint": {"key": "a/b", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
    },
}

CDI: dict[str, Any] = {
    "cdiVersion": "1.1.0",
    "kind": "lamps.example.com/lamp",
    "annotations": {"a": "b"},
    "devices": [
        {
            "name": "lamp-0",
            "annotations": {"c": "d"},
            "containerEdits": {
                "env": ["LAMP=0"],
                "deviceNodes": [
                    {
                        "path": "/dev/lamp0",
                        "hostPath": "/dev/null",
                        "type": "c",
                        "major": 1,
                        "minor": 3,
                        "permissions": "rw",
                    }
                ],
                "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"], "type": "bind"}],
                "hooks": [{"hookName": "createContainer", "path": "/bin/true", "args": ["true"], "timeout": 3}],
                "additionalGids": [1],
                "intelRdt": {"closID": "x"},
                "netDevices": [{"hostInterfaceName": "eth0", "name": "eth1"}],
            },
        }
    ],
    "containerEdits": {"env": ["ALL=1"]},
}

METADATA: dict[str, Any] = {
    "apiVersion": "metadata.resource.k8s.io/v1alpha1",
    "kind": "DeviceMetadata",
    "metadata": {"name": "claim", "namespace": "default", "uid": UID, "generation": 1},
    "podClaimName": "lamp",
    "requests": [
        {
            "name": "r",
            "devices": [
                {
                    "driver": DRIVER,
                    "pool": "node-1",
                    "name": "lamp-0",
                    "attributes": {"colour": {"string": "red"}, "revs": {"versions": ["1.2.3"]}, "n": {"ints": [1, 2]}},
                    "networkData": {"interfaceName": "eth1", "ips": ["10.9.8.7/24"]},
                }
            ],
        }
    ],
}

STATE: dict[str, Any] = {
    "namespace": "default",
    "name": "claim",
    "uid": UID,
    "boot_id": "boot-1",
    "phase": "PrepareCompleted",
    "devices": [
        {
            "request": "r",
            "pool": "node-1",
            "name": "lamp-0",
            "share_id": UID,
            "admin_access": True,
            "consumed_capacity": {"light": "1Ki"},
            "data": {"lamp": {"on": [1, 2.5, None]}},
            "cdi_ids": ["lamps.example.com/lamp=lamp-0"],
        }
    ],
    "journal": [{"before": 1}],
    "cdi_spec": CDI,
    "metadata": [{"request": "r", "path": "a/b", "container_path": "/a/b", "content": "{}"}],
    "statuses": [{"driver": DRIVER, "pool": "node-1", "device": "lamp-0"}],
}

OVERLAY: dict[str, Any] = {
    "apiVersion": "dra-sdk.dev/v1alpha1",
    "kind": "DeviceOverlay",
    "rules": [
        {
            "nodes": ["node-1"],
            "match": 'device.attributes["lamps.example.com"].colour == "red"',
            "attributes": {"lamps.example.com/rack": "7"},
            "taints": [{"key": "a/b", "effect": "NoSchedule"}],
            "override": True,
        }
    ],
}

STATUS: dict[str, Any] = {
    "kind": "Status",
    "apiVersion": "v1",
    "status": "Failure",
    "message": "no",
    "reason": "TooManyRequests",
    "details": {"name": "x", "retryAfterSeconds": 1, "causes": [{"reason": "a", "message": "b", "field": "c"}]},
    "code": 429,
}

UNHEALTHY: dict[str, Any] = {
    "version": 1,
    "unhealthy": [{"pool": "node-1", "device": "lamp-0", "since": "2026-01-01T00:00:00Z"}],
}

SETTINGS: dict[str, Any] = {"kubeletDir": "/var/lib/kubelet", "drainSeconds": 20, "serve": "both", "nodeName": "node-1"}
