"""What the chart installs for the drivers of the tests: the account of each, without a pod or with one."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

from dra_sdk.tools.manifests import Chart
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.image import BUSYBOX

ROOT = Path(__file__).parents[2]
_PYTHON = {Path("/usr"), Path("/lib"), Path("/lib64"), Path("/etc"), Path(sys.base_prefix), Path(sys.prefix), ROOT}
PYTHON_SETTINGS = {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
"""The environment of a pod that runs this repository with `python_directories`."""
JSON = dict[str, Any]
NAMESPACE = "dra-sdk"


def account(driver: str) -> str:
    """Returns the name of the account of a driver, given its name in the API."""
    return f"dra-{_key(driver)}"


def install(cluster: Cluster, driver: str, **fields: Any) -> None:
    """Applies everything of a driver but its classes and its DaemonSet. `fields` are those of its entry in the values.

    Applied again with other fields, it changes what was there.
    """
    entry = {"driverName": driver, "enabled": True, "daemonSet": False, **fields}
    values = {"drivers": {_key(driver): entry}, "namespace": {"create": True}, "deviceClasses": {"create": False}}
    cluster.apply(*(each.text for each in Chart().render(values, namespace=NAMESPACE)))


@cache
def kubeconfig(cluster: Cluster, driver: str) -> Path:
    """Returns a kubeconfig of the driver's account, which it installs first; its token is valid for a day."""
    install(cluster, driver)
    return cluster.service_account_kubeconfig(NAMESPACE, account(driver))


def python_directories() -> list[Path]:
    """Returns the directories of this machine that a pod needs to run this repository with this Python."""
    return sorted(each for each in _PYTHON if each.exists())


def runnable(cluster: Cluster, key: str, **fields: Any) -> JSON:
    """Returns the values for one driver on this cluster; `fields` are its entry, or change that of the chart's values.

    No image can be pulled here, so the image is busybox, with this machine's Python and this repository mounted.
    """
    repository, _, tag = BUSYBOX.rpartition(":")
    entry = {
        "enabled": True,
        "command": [sys.executable, "-m", "dra_sdk.cli.main"],
        **fields,
        "hostPaths": [{"path": str(each)} for each in python_directories()] + fields.get("hostPaths", []),
        "env": {**PYTHON_SETTINGS, **fields.get("env", {})},
    }
    return chart_values(cluster, repository, tag, {key: entry})


def chart_values(cluster: Cluster, repository: str, tag: str, drivers: JSON) -> JSON:
    """Returns the chart's values for drivers on this cluster, whose image is there already."""
    return {
        "namespace": {"create": True},
        "kubeletDir": str(cluster.kubelet_dir),
        "cdiDir": str(cluster.cdi_dir),
        "nriDir": str(cluster.nri_socket.parent),
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "drivers": drivers,
    }


def release(values: JSON) -> list[JSON]:
    """Returns the objects that the chart makes of these values."""
    return [each.object for each in Chart().render(values, namespace=NAMESPACE)]


def _key(driver: str) -> str:
    return driver.replace(".", "-")
