"""Values that turn every switch of the chart, one by one and all together."""

from __future__ import annotations

from typing import Any

JSON = dict[str, Any]


def cpu(**fields: Any) -> JSON:
    return {"drivers": {"cpu": {"enabled": True, **fields}}}


LAMPS: JSON = {"driverName": "lamps.example.com"}
ALL: JSON = {
    "drivers": {"cpu": {"enabled": True}, "gpu": {"enabled": True}, "gpu-amd": {"enabled": True}, "lamps": LAMPS},
    "namespace": {"create": True},
    "priorityClass": {"create": True, "name": "dra-drivers", "value": 1000000},
    "monitoring": {"podMonitor": True, "alerts": True, "dashboard": True, "interval": "10s", "labels": {"a": "b"}},
    "openShift": True,
    "networkPolicy": {
        "create": True,
        "apiServerPorts": [8443],
        "apiServer": ["10.0.0.5/32", "fd00::5/128"],
        "dns": {"matchLabels": {"dns": "yes"}, "matchExpressions": None},
        "scrapedFrom": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
    },
    "uninstallGuard": {"create": True, "tolerations": [{"operator": "Exists"}]},
    "viewer": {"create": True, "aggregateToView": True},
}
DIGEST = "sha256:" + "0123456789abcdef" * 4
SWITCHES: dict[str, JSON] = {
    "nothing": {},
    "everything": ALL,
    "cpu": cpu(),
    "gpu": {"drivers": {"gpu": {"enabled": True}}},
    "gpu without privileges": {"drivers": {"gpu": {"enabled": True, "env": {"DRA_GPU_MPS": "false"}}}},
    "gpu with dynamic MIG": {"drivers": {"gpu": {"enabled": True, "env": {"DRA_GPU_DYNAMIC_MIG": "true"}}}},
    "gpu-amd": {"drivers": {"gpu-amd": {"enabled": True}}},
    "gpu-amd with passthrough": {"drivers": {"gpu-amd": {"enabled": True, "env": {"DRA_AMD_PASSTHROUGH": "true"}}}},
    "device-plugin": {"drivers": {"device-plugin": {"enabled": True}}},
    "another driver": {"drivers": {"lamps": LAMPS}},
    "another driver with all fields": {
        "drivers": {
            "lamps": {
                **LAMPS,
                "enabled": True,
                "run": "lamps_driver:LampDriver",
                "image": {"repository": "registry.example.com/lamps", "tag": "1.2", "pullPolicy": "Always"},
                "command": ["python", "-m", "dra_sdk.cli.main"],
                "daemonSet": True,
                "env": {"LAMPS_COLOUR": "blue", "LAMPS_TEXT": 'a "quoted" \\ word', "LAMPS_NONE": ""},
                "deviceClasses": [
                    {"name": "lamp", "expression": 'device.driver == "lamps.example.com" && "a\\\\d" != ""'},
                    {"name": "any", "expression": "true", "extendedResourceName": "example.com/lamp"},
                ],
                "cdiDir": "/var/run/cdi-drivers/lamps",
                "deviceStatus": True,
                "podGroupClaims": True,
                "nri": True,
                "hostRoot": "ReadWrite",
                "hostPaths": [
                    {"path": "/sys/lamps", "access": "ReadWrite"},
                    {"path": "/dev/lamp", "type": "CharDevice", "mountPath": "/host/dev/lamp"},
                ],
                "capabilities": ["SYS_ADMIN"],
                "hostPID": True,
                "hostNetwork": True,
                "httpPort": 9090,
                "runtimeClassName": "lamps",
                "nodeSelector": {"lamps": "yes"},
                "affinity": {"nodeAffinity": {}},
                "tolerations": [],
                "podAnnotations": {"a": "b"},
                "podLabels": {"c": "d"},
                "resources": {"limits": {"memory": "1Gi", "cpu": 2}},
            }
        }
    },
    "a privileged driver": {
        "drivers": {
            "lamps": {**LAMPS, "privileged": True, "whenPrivileged": {"hostPID": True, "nodeSelector": {"a": "b"}}}
        }
    },
    "privileged for a setting that is not set": {"drivers": {"lamps": {**LAMPS, "privilegedUnless": {"SAFE": "true"}}}},
    "not privileged for a setting": {
        "drivers": {"lamps": {**LAMPS, "env": {"SAFE": "true"}, "privilegedUnless": {"SAFE": "true"}}}
    },
    "the host's root for reading": cpu(hostRoot="ReadOnly"),
    "no DaemonSet": cpu(daemonSet=False),
    "a list is replaced": cpu(tolerations=[{"key": "a", "operator": "Exists"}]),
    "defaults for all": {**cpu(), "defaults": {"nri": True, "resources": {"limits": {"memory": "300Mi"}}}},
    "an image by digest": {**cpu(), "image": {"repository": "r.example.com/x", "tag": "1", "digest": DIGEST}},
    "image pull": {**cpu(), "image": {"pullPolicy": "Always"}, "imagePullSecrets": [{"name": "s"}]},
    "other directories": {**cpu(nri=True), "kubeletDir": "/k", "cdiDir": "/c", "nriDir": "/n"},
    "no classes, policies and roles for people": {
        **cpu(),
        "deviceClasses": {"create": False},
        "admission": {"create": False},
        "viewer": {"create": False},
    },
    "a priority class": {**cpu(), "priorityClass": {"create": True, "name": "p", "value": 999999999}},
    "another priority class": {**cpu(), "priorityClass": {"name": "p"}},
    "a network policy by default": {**cpu(), "networkPolicy": {"create": True}},
    "a value is removed": {"drivers": {"gpu": {"enabled": True, "nodeSelector": {"nvidia.com/gpu.present": None}}}},
}
