"""Build the CDI spec of a claim from the container edits of its devices.

These are plain functions over the author's dataclasses and dicts: three devices take some tens of microseconds. Only
fields that are set are written, so that the spec declares the oldest CDI version that can hold them. The built spec
passes the same checks as a spec of another program.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model import JSON
from dra_sdk.model.edits import ContainerEdits, DeviceNode, IntelRdt, Mount, NetDevice, OciHook
from dra_sdk.wire.cdi import schema
from dra_sdk.wire.cdi.validation import EARLIEST, content_problems, minimum_version


def claim_spec(kind: str, devices: Mapping[str, ContainerEdits]) -> JSON:
    """Return the CDI spec of a kind (`vendor/class`) with these devices, by name. Its version is the lowest possible.

    Raises InvalidObjectError with a sentence for each broken rule. It names the CDI device and the field. Runtimes
    refuse a device with empty edits, so this does too: leave it out and give the kubelet no CDI ID (`is_empty`).
    """
    subject, wrong_types, listed = f"CDI spec {kind}", list[str](), list[JSON]()
    for name, edits in devices.items():
        problems: list[str] = []
        listed.append({"name": name, "containerEdits": schema.EDITS.read(edits_to_json(edits), problems)})
        wrong_types += [f"device {name}: {problem.lstrip('.')}" for problem in problems]
    if wrong_types:
        raise InvalidObjectError(subject, wrong_types)
    spec: JSON = {"cdiVersion": EARLIEST, "kind": kind, "devices": listed}
    spec["cdiVersion"] = minimum_version(spec)
    problems = [f"device {name}: {problem}" for name, edits in devices.items() for problem in env_problems(edits)]
    problems.extend(content_problems(spec))
    if problems:
        raise InvalidObjectError(subject, problems)
    return spec


def is_empty(edits: ContainerEdits) -> bool:
    """Return whether these edits change nothing. CDI refuses such a device, so the kubelet must get no CDI ID."""
    return not (
        edits.env
        or edits.device_nodes
        or edits.mounts
        or edits.hooks
        or edits.net_devices
        or edits.additional_gids
        or edits.intel_rdt is not None
    )


def edits_to_json(edits: ContainerEdits) -> JSON:
    """Return the `containerEdits` object, unchecked."""
    fields: JSON = {}
    if edits.env:
        fields["env"] = _env(edits.env)
    if edits.device_nodes:
        fields["deviceNodes"] = [_device_node(node) for node in edits.device_nodes]
    if edits.net_devices:
        fields["netDevices"] = [_net_device(device) for device in edits.net_devices]
    if edits.hooks:
        fields["hooks"] = [_hook(hook) for hook in edits.hooks]
    if edits.mounts:
        fields["mounts"] = [_mount(mount) for mount in edits.mounts]
    if edits.intel_rdt is not None:
        fields["intelRdt"] = _intel_rdt(edits.intel_rdt)
    if edits.additional_gids:
        fields["additionalGids"] = list(edits.additional_gids)
    return fields


def env_problems(edits: ContainerEdits) -> Iterator[str]:
    """Yield a problem for each variable name that cannot be part of NAME=VALUE."""
    yield from _name_problems(edits.env, "env")
    for index, hook in enumerate(edits.hooks):
        yield from _name_problems(hook.env, f"hooks[{index}].env")


def _name_problems(env: Mapping[str, str], path: str) -> Iterator[str]:
    for name in env:
        if not name or "=" in name:
            yield f"{path}: the name of a variable must not be empty or contain '=', is {name!r}"


def _env(env: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in env.items()]


def _list(texts: Sequence[str]) -> Any:
    """Return a list, None for an empty one. A plain string stays: the schema refuses it instead of taking it apart."""
    return texts if isinstance(texts, str) else list(texts) or None


def _set(**fields: Any) -> JSON:
    return {name: value for name, value in fields.items() if value is not None}


def _device_node(node: DeviceNode) -> JSON:
    return _set(
        path=node.path,
        hostPath=node.host_path,
        type=node.type,
        major=node.major,
        minor=node.minor,
        fileMode=node.file_mode,
        permissions=node.permissions,
        uid=node.uid,
        gid=node.gid,
    )


def _net_device(device: NetDevice) -> JSON:
    return {"hostInterfaceName": device.host_interface_name, "name": device.name}


def _mount(mount: Mount) -> JSON:
    return _set(
        hostPath=mount.host_path,
        containerPath=mount.container_path,
        options=_list(mount.options),
        type=mount.type,
    )


def _hook(hook: OciHook) -> JSON:
    return _set(
        hookName=hook.hook_name,
        path=hook.path,
        args=_list(hook.args),
        env=_env(hook.env) or None,
        timeout=hook.timeout,
    )


def _intel_rdt(rdt: IntelRdt) -> JSON:
    return _set(
        closID=rdt.clos_id,
        l3CacheSchema=rdt.l3_cache_schema,
        memBwSchema=rdt.mem_bw_schema,
        schemata=_list(rdt.schemata),
        enableMonitoring=rdt.enable_monitoring or None,
    )
