"""Plugins of a CNI network that the node names: they are chained after the interface that the driver has moved.

The driver is the first link of the chain: what it gave the pod is the `prevResult` of the first plugin. The network is
read when a claim is prepared and kept with the claim, so DEL gets what ADD got, also after the file has changed.
Source: the CNI specification 1.1.0, sections 1 to 5.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from dra_driver_nic.network.links import NetworkNamespace
from dra_driver_nic.prepare.attachment import Attachment
from dra_sdk import HardwareError, PermanentError, RetriableError
from dra_sdk.hardware import entries, exists, read_text
from dra_sdk.hardware.node_access import NodeAccess

log = logging.getLogger(__name__)
_VERSIONS: Final = ("0.4.0", "1.0.0", "1.1.0")  # those with CHECK
_SHORTEST: Final = 1.0  # seconds for DEL although the call has ended
_LARGEST: Final = 1 << 20  # bytes of a conflist
_SHOWN: Final = 300  # characters of what a plugin prints
_PROC: Final = "proc/self"  # a host's root has it, a tree of files has not


class CniError(RetriableError):
    """A plugin has failed, or there is no such network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CniCall:
    """For whom plugins are called: the parameters of the protocol that are the same for all plugins of a chain.

    container: the id of the pod's sandbox (CNI_CONTAINERID).
    pod_namespace: the Kubernetes namespace of the pod.
    pod_name: its name.
    pod_uid: its UID.
    """

    container: str
    pod_namespace: str
    pod_name: str
    pod_uid: str

    @property
    def arguments(self) -> str:
        """CNI_ARGS, as container runtimes give them."""
        return (
            f"IgnoreUnknown=1;K8S_POD_NAMESPACE={self.pod_namespace};K8S_POD_NAME={self.pod_name};"
            f"K8S_POD_INFRA_CONTAINER_ID={self.container};K8S_POD_UID={self.pod_uid}"
        )


def read_network(access: NodeAccess, name: str, directory: str, programs: Sequence[str]) -> dict[str, Any]:
    """Read the network with a name from the conflists of a directory of the node.

    programs: the directories with plugins.

    Raises PermanentError if there is none, or the driver cannot use it.
    """
    network: dict[str, Any] | None = None
    names: list[str] = []
    folder = access.local(directory)
    for path in (folder / name for name in entries(folder) if name.endswith(".conflist")):
        try:
            content = json.loads(read_text(path, _LARGEST))
            names.append(str(content["name"]))
        except (HardwareError, ValueError, KeyError, TypeError) as error:
            log.warning("%s is left out: it is no CNI network: %s", path, error)
            continue
        if content["name"] == name and network is None:
            network = content
    if network is None:
        raise PermanentError(
            f"cni.conflist {name}: no *.conflist in {directory} of the node has this name; "
            f"there is {', '.join(names) or 'none'}"
        )
    _check_network(access, name, network, programs)
    return network


def _check_network(access: NodeAccess, name: str, network: Mapping[str, Any], programs: Sequence[str]) -> None:
    version, plugins = network.get("cniVersion"), network.get("plugins")
    if version not in _VERSIONS:
        raise PermanentError(f"cni.conflist {name}: cniVersion must be one of {', '.join(_VERSIONS)}, is {version!r}")
    if not isinstance(plugins, list) or not plugins:
        raise PermanentError(f"cni.conflist {name}: plugins must be a list of at least one plugin")
    for number, plugin in enumerate(plugins):
        kind = plugin.get("type") if isinstance(plugin, dict) else None
        if not isinstance(kind, str) or not kind or "/" in kind:
            raise PermanentError(f"cni.conflist {name}: plugins[{number}].type must be the name of a program")
        if _find(access, kind, programs) is None:
            raise PermanentError(
                f"cni.conflist {name}: plugins[{number}].type: there is no program {kind} in "
                f"{', '.join(programs)} of the node"
            )


def _find(access: NodeAccess, kind: str, programs: Sequence[str]) -> str | None:
    """Return the path of a plugin on the node."""
    paths = (f"{directory}/{kind}" for directory in programs)
    return next((path for path in paths if os.access(access.local(path), os.X_OK)), None)


@dataclass(frozen=True, slots=True)
class Chain:
    """The plugins of a network, for one interface in a pod.

    access: the node.
    programs: the directories with plugins.
    node: the network namespace of the node, in which plugins run.
    attachment: the interface, with the network.
    call: for whom.
    path: the path of the pod's network namespace on the node, as results name it.
    """

    access: NodeAccess
    programs: Sequence[str]
    node: NetworkNamespace
    attachment: Attachment
    call: CniCall
    path: str

    def add(self, pod: NetworkNamespace) -> dict[str, Any]:
        """Call ADD of all plugins. The result of the last one. Raises CniError."""
        result = self._first_result()
        for plugin in self._plugins:
            output = self._result(plugin, self._run("ADD", plugin, result, pod))
            result = _replaced(output, _handle_path(pod), self.path)
        return result

    def check(self, pod: NetworkNamespace, result: Mapping[str, Any]) -> str:
        """Call CHECK of all plugins, unless the network disables it; what went wrong, if anything.

        A runtime need not call it, and CHECK of a plugin may fail for what its ADD has made, so it undoes nothing.
        """
        if self._network.get("disableCheck") is True:
            return ""
        try:
            for plugin in self._plugins:
                self._run("CHECK", plugin, result, pod)
        except CniError as error:
            return str(error)
        return ""

    def delete(self, pod: NetworkNamespace | None, result: Mapping[str, Any]) -> None:
        """Call DEL of all plugins, the last one first. All are called even if one fails. Raises CniError.

        pod: the pod's network namespace; None if it does not exist any more.
        result: what `add` gave; empty if that did not end.
        """
        problems = []
        for plugin in reversed(self._plugins):
            try:
                self._run("DEL", plugin, result or self._first_result(), pod)
            except CniError as error:
                problems.append(str(error))
        if problems:
            raise CniError("; ".join(problems))

    @property
    def _network(self) -> Mapping[str, Any]:
        return self.attachment.cni

    @property
    def _version(self) -> str:
        return str(self._network["cniVersion"])

    @property
    def _plugins(self) -> list[dict[str, Any]]:
        return list(self._network["plugins"])

    def _first_result(self) -> dict[str, Any]:
        """Return what the driver itself gave the pod, as a result of CNI."""
        state = self.attachment.pod
        mac = state.mac or self.attachment.host.mac
        interface = {"name": state.name, "mac": mac, "sandbox": self.path}
        ips: list[dict[str, Any]] = [{"address": address.address, "interface": 0} for address in state.addresses]
        if self._version < "1":
            ips = [{**ip, "version": "6" if ":" in ip["address"] else "4"} for ip in ips]
        routes = [
            {"dst": route.destination, **({"gw": route.gateway} if route.gateway else {})} for route in state.routes
        ]
        return {"cniVersion": self._version, "interfaces": [interface], "ips": ips, "routes": routes, "dns": {}}

    def _result(self, plugin: Mapping[str, Any], output: str) -> dict[str, Any]:
        try:
            result = json.loads(output)
        except ValueError:
            result = None
        if not isinstance(result, dict):
            raise CniError(f"{self._call_name('ADD', plugin)} printed no result: {output[:_SHOWN]!r}")
        return result

    def _call_name(self, command: str, plugin: Mapping[str, Any]) -> str:
        return f"{command} of CNI plugin {plugin['type']} of network {self._network['name']} for {self.attachment}"

    def _run(
        self, command: str, plugin: Mapping[str, Any], result: Mapping[str, Any], pod: NetworkNamespace | None
    ) -> str:
        """Call one plugin; what it prints. Raises CniError."""
        call_name = self._call_name(command, plugin)
        program = _find(self.access, plugin["type"], self.programs)
        if program is None:
            raise CniError(f"{call_name}: there is no such program in {', '.join(self.programs)} of the node")
        namespace = _handle_path(pod)
        config = {key: value for key, value in plugin.items() if key != "capabilities"}
        config |= {"name": self._network["name"], "cniVersion": self._version}
        if self.attachment.pci and (plugin.get("capabilities") or {}).get("deviceID"):
            config["runtimeConfig"] = {"deviceID": self.attachment.pci}
        config["prevResult"] = _replaced(dict(result), self.path, namespace)
        environment = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": self.call.container,
            "CNI_NETNS": namespace,
            "CNI_IFNAME": self.attachment.pod.name,
            "CNI_ARGS": self.call.arguments,
            "CNI_PATH": ":".join(self._place(directory) for directory in self.programs),
        }
        seconds = self.access.clock.left(60.0)
        if command == "DEL":
            seconds = max(seconds, _SHORTEST)
        argv = [*self._prefix, self._place(program)]
        handles = () if pod is None else (pod.handle,)
        call = partial(_call, call_name, argv, environment, json.dumps(config), handles=handles, seconds=seconds)
        return self.node.run(lambda _network: call())

    @property
    def _prefix(self) -> list[str]:
        """Plugins of a host keep files there and call its programs, so they run in its root."""
        return ["chroot", str(self.access.root)] if self._is_other_root else []

    @property
    def _is_other_root(self) -> bool:
        return self.access.root != Path("/") and exists(self.access.root / _PROC)

    def _place(self, path: str) -> str:
        return path if self._is_other_root else str(self.access.local(path))


def _call(
    call_name: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
    stdin: str,
    *,
    handles: Collection[int],
    seconds: float,
) -> str:
    """Run a plugin; what it prints. Raises CniError."""
    try:
        done = subprocess.run(
            argv,
            input=stdin,
            env={**os.environ, **environment},
            pass_fds=handles,
            timeout=max(seconds, 0.001),
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise CniError(f"{call_name} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired:
        raise CniError(f"{call_name} did not end within {seconds:.1f} s") from None
    if done.returncode:
        raise CniError(f"{call_name} failed: {_reason(done.stdout, done.stderr)}")
    return done.stdout


def _reason(output: str, errors: str) -> str:
    """Say why a plugin failed, by the error that it prints as JSON, else by what it prints."""
    try:
        error = json.loads(output)
        texts = [str(error["msg"]), str(error.get("details", ""))]
    except (ValueError, KeyError, TypeError, AttributeError):
        texts = [output, errors]
    return (" ".join(" ".join(texts).split()) or "it printed nothing")[:_SHOWN]


def _handle_path(namespace: NetworkNamespace | None) -> str:
    """Return the path by which a plugin opens a namespace that it inherits as an open file, wherever its root is."""
    return "" if namespace is None else f"/proc/self/fd/{namespace.handle}"


def _replaced(result: Mapping[str, Any], before: str, after: str) -> dict[str, Any]:
    """Return a result whose interfaces of one namespace are of another: a plugin knows it by another path."""
    replaced = dict(result)
    if isinstance(interfaces := result.get("interfaces"), list):
        replaced["interfaces"] = [
            {**entry, "sandbox": after} if isinstance(entry, dict) and entry.get("sandbox") == before else entry
            for entry in interfaces
        ]
    return replaced
