"""What the kubelet's configuration must be: feature gates, and who gives CPUs to containers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from dra_sdk.errors import ApiError
from dra_sdk.kube.api import KubeApi
from dra_sdk.tools.doctor.diagnosis import Diagnosis, NodePaths

CPU_DRIVER: Final = "dra.cpu"
"""The driver that gives CPUs to containers, as the kubelet does with the CPU manager policy `static`."""
_CONFIG: Final = "config.yaml"
_STATE: Final = "cpu_manager_state"
_GATES: Final = ("DRA", "DynamicResource", "KubeletPlugins")
"""How the names of the kubelet's gates for DRA begin."""


@dataclass(frozen=True, slots=True)
class _Configuration:
    """A configuration of the kubelet, and where it is from; None if it could not be read, `source` then says why."""

    fields: Mapping[str, Any] | None
    source: str
    whole: bool = False
    """Whether it has what flags and defaults say, too."""


def kubelet_configuration(paths: NodePaths, api: KubeApi | None, node: str, driver: str) -> Iterator[Diagnosis]:
    """Check the kubelet's configuration: as it says itself, if this account may ask it, or else by its files.

    node: the name of the node. driver: whose node it is to be; the CPU manager's policy matters to `CPU_DRIVER` alone.
    """
    asking = f"kubectl get --raw /api/v1/nodes/{node}/proxy/configz"
    configuration = _of_kubelet(api, node) or _of_file(paths.kubelet / _CONFIG)
    yield _gates(configuration, asking)
    yield _cpu_manager(configuration, paths.kubelet / _STATE, asking, driver)


def _of_kubelet(api: KubeApi | None, node: str) -> _Configuration | None:
    """Return what the kubelet says; None if this account may not ask, as that of a driver may not."""
    if api is None:
        return None
    try:
        answer = api.get(f"/api/v1/nodes/{node}/proxy/configz")
    except ApiError:
        return None
    fields = answer.get("kubeletconfig")
    return _Configuration(fields, "the kubelet", whole=True) if isinstance(fields, dict) else None


def _of_file(file: Path) -> _Configuration:
    try:
        fields = yaml.safe_load(file.read_text())
    except FileNotFoundError:
        return _Configuration(None, f"there is no {file}")
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        return _Configuration(None, f"cannot read {file}: {error}")
    if not isinstance(fields, dict):
        return _Configuration(None, f"{file} is no configuration")
    return _Configuration(fields, str(file))


def _gates(configuration: _Configuration, asking: str) -> Diagnosis:
    subject = "feature gates of the kubelet"
    if configuration.fields is None:
        return Diagnosis("unknown", subject, configuration.source, f"{asking} shows featureGates")
    gates = configuration.fields.get("featureGates") or {}
    off = [name for name, on in gates.items() if name.startswith(_GATES) and not on]
    if off:
        names = ", ".join(off)
        return Diagnosis(
            "missing", subject, f"{configuration.source} has {names} off", f"remove {names} from featureGates"
        )
    unseen = "" if configuration.whole else "; flags of the kubelet are not seen"
    return Diagnosis("ok", subject, f"{configuration.source} turns none for DRA off{unseen}")


def _cpu_manager(configuration: _Configuration, state: Path, asking: str, driver: str) -> Diagnosis:
    """Check that the kubelet gives no CPUs away itself; every kubelet writes its policy into its state."""
    subject = "CPU manager of the kubelet"
    policy, source = (configuration.fields or {}).get("cpuManagerPolicy"), configuration.source
    if policy is None or not configuration.whole:
        policy, source = (by_state, str(state)) if (by_state := _policy_of(state)) else (policy, source)
    if policy is None:
        found = source if configuration.fields is None else f"{source} does not say cpuManagerPolicy"
        return Diagnosis("unknown", subject, found, f"{asking} shows cpuManagerPolicy")
    if policy != "static":
        return Diagnosis("ok", subject, f"policy {policy} ({source}): it gives no CPUs to containers")
    found = f"policy static ({source}): it gives CPUs to containers by itself, so {CPU_DRIVER} does not start here"
    if driver != CPU_DRIVER:
        return Diagnosis("ok", subject, f"{found}; no other driver minds")
    remedy = f"drain the node, set cpuManagerPolicy: none, stop the kubelet, remove {state}, start it"
    return Diagnosis("missing", subject, found, remedy)


def _policy_of(state: Path) -> str | None:
    """Return the policy in the CPU manager's state; None if the file is absent or something else."""
    try:
        content = json.loads(state.read_text())
    except (OSError, ValueError):
        return None
    policy = content.get("policyName") if isinstance(content, dict) else None
    return policy if isinstance(policy, str) else None
