"""What a node needs so that DRA drivers work on it, and what of it is missing; a remedy for each.

The node's own files are read below a root, the API server is asked as the driver's account. What cannot be seen from
here is reported as unknown, with the way to find out. Nothing is changed; only a SelfSubjectAccessReview is sent, which
no server stores.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from dra_sdk.errors import ApiError, SettingsError
from dra_sdk.kube.api import KubeApi
from dra_sdk.model.omissions import Omission
from dra_sdk.node.nri.plugin import socket_below
from dra_sdk.wire.profile import GATES, ServerProfile

Status = Literal["ok", "missing", "unknown"]
CONTAINERD_CONFIG: Final = "etc/containerd/config.toml"
PERMISSIONS: Final = (
    ("", "nodes", "get"),
    ("resource.k8s.io", "resourceclaims", "get"),
    *(("resource.k8s.io", "resourceslices", verb) for verb in ("list", "watch", "create", "update", "delete")),
    *(("events.k8s.io", "events", verb) for verb in ("create", "patch")),
)
"""API group, resource and verb of what every driver asks for."""
_OLDEST_KUBELET: Final = (1, 34)
_CONTAINERD_2: Final = 2
_CDI_DIRS: Final = ("/etc/cdi", "/var/run/cdi")
_CRI: Final = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
_NRI: Final = "io.containerd.nri.v1.nri"
_CONNECT_SECONDS: Final = 2.0
_COSTS: Final = {True: "so the device is not published", False: "so devices lack what it describes"}
_MINIMUM: Final = "Kubernetes 1.34 or later serves resource.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of one check.

    status: ok, missing, or unknown: it cannot be seen from here.
    subject: what was looked at.
    found: what is there, in a sentence without a full stop.
    remedy: what to do, or how to find out; empty if it is ok.
    """

    status: Status
    subject: str
    found: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class NodePaths:
    """Where the parts of a node are, as this process sees them.

    kubelet: the kubelet's root directory.
    registry: where a driver makes its registration socket, plugins_registry or a directory below it.
    plugins: where a driver keeps socket and state, `plugins` or the driver's own directory below it.
    cdi: where the drivers write CDI specs.
    root: the host's root, or / where this process has the same.
    nri: the runtime's socket for NRI plugins, if the driver has a setting for it; None for the usual one of the host.
    """

    kubelet: Path
    registry: Path
    plugins: Path
    cdi: Path
    root: Path = Path("/")
    nri: Path | None = None


def examine(paths: NodePaths, api: KubeApi | None, node_name: str, *, nri: bool = False) -> list[Diagnosis]:
    """Return all checks, in the order in which a reader would mend what is missing.

    api: None if no credentials were found. nri: whether a driver of this node needs NRI.
    """
    node, findings = _node(api, node_name)
    runtime = str(node.get("status", {}).get("nodeInfo", {}).get("containerRuntimeVersion", ""))
    return [
        *directories(paths),
        *container_runtime(paths, runtime, nri=nri),
        *kubelet_gates(paths.kubelet),
        *findings,
        *(permissions(api) if api is not None else ()),
    ]


# -- the node's files


def directories(paths: NodePaths) -> Iterator[Diagnosis]:
    """Yield the directories that a driver writes to."""
    yield _writable(
        paths.registry,
        "the kubelet makes it: name its root directory with --kubelet-dir, or mount it into the pod",
    )
    yield _writable(paths.plugins, "make it, or mount plugins/DRIVER of the kubelet's directory into the pod")
    yield _writable(paths.cdi, "make it, or mount it into the pod; the runtime must read it (cdi_spec_dirs)")


def _writable(path: Path, remedy: str) -> Diagnosis:
    subject = f"directory {path}"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return Diagnosis("missing", subject, "does not exist", remedy)
    except OSError as error:
        return Diagnosis("unknown", subject, error.strerror or str(error), "run it as root")
    if not stat.S_ISDIR(mode):
        return Diagnosis("missing", subject, "is no directory", remedy)
    if not os.access(path, os.W_OK | os.X_OK):
        return Diagnosis("missing", subject, f"user {os.geteuid()} may not write there", "run the driver as root")
    return Diagnosis("ok", subject, "can be written")


# -- the container runtime


def container_runtime(paths: NodePaths, version: str, *, nri: bool) -> Iterator[Diagnosis]:
    """Check CDI and NRI of the runtime. `version` is that in the Node's status, as `containerd://2.1.4`, or empty."""
    name, _, number = version.partition("://")
    file = paths.root / CONTAINERD_CONFIG
    if name == "cri-o":
        yield Diagnosis(
            "ok",
            "CDI",
            f"CRI-O {number} has it on; it reads {' and '.join(_CDI_DIRS)} unless cdi_spec_dirs says otherwise",
        )
    elif name not in {"containerd", ""}:
        yield Diagnosis("unknown", "CDI", f"the runtime is {version}", "see its documentation for CDI")
    else:
        try:
            config = read_containerd(file, paths.root)
        except FileNotFoundError:
            yield _without_config(file, number)
        except (OSError, tomllib.TOMLDecodeError) as error:
            yield Diagnosis("unknown", "CDI", f"cannot read {file}: {error}", "mend the file, or run it as root")
        else:
            yield _cdi(config, file, number)
            yield _cdi_directory(config, paths.cdi)
    yield _nri(paths.nri or socket_below(paths.root), needed=nri or paths.nri is not None)


def read_containerd(file: Path, root: Path) -> dict[str, Any]:
    """Return the configuration of containerd with its `imports`, whose tables are merged by key."""
    config = tomllib.loads(file.read_text())
    for pattern in config.get("imports", []):
        base = root if str(pattern).startswith("/") else file.parent
        for path in sorted(base.glob(str(pattern).lstrip("/"))):
            config = _merged(config, tomllib.loads(path.read_text()))
    return config


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(below[key], value) if isinstance(value, dict) and isinstance(below.get(key), dict) else value
        for key, value in above.items()
    }
    return {**below, **both}


def _without_config(file: Path, version: str) -> Diagnosis:
    """Return a finding for an absent file: it may be elsewhere, or not visible in a pod; only the default is known."""
    default = "on in containerd 2, off in 1.7"
    if version:
        default = f"{'on' if _major(version) >= _CONTAINERD_2 else 'off'} in containerd {version}"
    remedy = "mount the host's root and give --host-root; k3s and others keep the file elsewhere"
    return Diagnosis("unknown", "CDI", f"by default {default}, but there is no {file} here", remedy)


def _cri_table(config: Mapping[str, Any]) -> str:
    return _CRI.get(config.get("version", 1), _CRI[2])


def _cri(config: Mapping[str, Any]) -> dict[str, Any]:
    return dict(config.get("plugins", {}).get(_cri_table(config), {}))


def _cdi(config: Mapping[str, Any], file: Path, version: str) -> Diagnosis:
    enabled = _cri(config).get("enable_cdi")
    if enabled is None and not version and config.get("version") != 3:  # noqa: PLR2004 (the form of containerd 2)
        remedy = "on in containerd 2, off in 1.7; set enable_cdi = true to be sure"
        return Diagnosis(
            "unknown", "CDI", f"{file} does not say enable_cdi, and the runtime's version is not known", remedy
        )
    if enabled or (enabled is None and (config.get("version") == 3 or _major(version) >= _CONTAINERD_2)):  # noqa: PLR2004
        return Diagnosis("ok", "CDI", "on in containerd")
    remedy = f"set enable_cdi = true in its table plugins.'{_cri_table(config)}', and restart containerd"
    return Diagnosis("missing", "CDI", f"off in {file}", remedy)


def _cdi_directory(config: Mapping[str, Any], cdi: Path) -> Diagnosis:
    read = [str(directory) for directory in _cri(config).get("cdi_spec_dirs", _CDI_DIRS)]
    subject = "cdi_spec_dirs"
    if _normal(str(cdi)) in map(_normal, read):
        return Diagnosis("ok", subject, f"containerd reads {cdi}")
    remedy = f"add {cdi} to cdi_spec_dirs and restart containerd, or give --cdi-dir one of these"
    return Diagnosis("missing", subject, f"containerd reads {', '.join(read)}, not {cdi}", remedy)


def _normal(directory: str) -> str:
    return os.path.normpath(directory).replace("/var/run/", "/run/")


def _nri(path: Path, *, needed: bool) -> Diagnosis:
    remedy = (
        f"containerd: disable = false in plugins.'{_NRI}'; CRI-O: enable_nri = true; both have it on in later releases"
    )
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(_CONNECT_SECONDS)
            client.connect(str(path))
    except OSError as error:
        problem = f"nobody listens at {path} ({error.strerror or error})"
        if needed:
            return Diagnosis("missing", "NRI", problem, remedy)
        return Diagnosis("unknown", "NRI", f"{problem}; only drivers that pin or adjust containers need it", remedy)
    return Diagnosis("ok", "NRI", f"the runtime listens at {path}")


def _major(version: str) -> int:
    match = re.match(r"v?(\d+)", version)
    return int(match[1]) if match else 0


# -- the hardware


def hardware(driver: str, omissions: Collection[Omission]) -> Iterator[Diagnosis]:
    """Yield what a discovery of a driver left out: a device is missing, a fact of one is unknown."""
    if not omissions:
        yield Diagnosis("ok", f"hardware of {driver}", "all that it reads can be read")
    for omission in sorted(omissions, key=lambda omission: (not omission.is_device, omission)):
        remedy = f"read it as root on the node: the kernel or the card refuses it, {_COSTS[omission.is_device]}"
        status: Status = "missing" if omission.is_device else "unknown"
        yield Diagnosis(status, omission.subject, omission.reason, remedy)


# -- the kubelet and the API server


def kubelet_gates(directory: Path) -> Iterator[Diagnosis]:
    """Check the feature gates in the kubelet's configuration file."""
    file, subject = directory / "config.yaml", "feature gates of the kubelet"
    try:
        config = yaml.safe_load(file.read_text())
    except FileNotFoundError:
        yield Diagnosis("unknown", subject, f"there is no {file}", "look at the kubelet's --config and --feature-gates")
        return
    except (OSError, yaml.YAMLError) as error:
        yield Diagnosis("unknown", subject, f"cannot read {file}: {error}", "run it as root")
        return
    gates = config.get("featureGates") if isinstance(config, dict) else None
    off = [
        name
        for name, on in (gates or {}).items()
        if name.startswith(("DRA", "DynamicResource", "KubeletPlugins")) and not on
    ]
    for name in off:
        yield Diagnosis("missing", subject, f"{file} turns {name} off", f"remove {name} from featureGates")
    if not off:
        yield Diagnosis("ok", subject, f"{file} turns none for DRA off; flags of the kubelet are not seen")


def _node(api: KubeApi | None, name: str) -> tuple[dict[str, Any], list[Diagnosis]]:
    """Return the Node object, and what is found about the API server and about the node."""
    if api is None:
        return {}, [
            Diagnosis("unknown", "API server", "there are no credentials", "give --kubeconfig, or run it in a pod")
        ]
    try:
        release = str(api.get("/version").get("gitVersion", ""))
    except ApiError as error:
        return {}, [
            Diagnosis("missing", "API server", str(error), "check the address, the certificate and the network")
        ]
    findings = [*_served(api, release)]
    try:
        node = api.get(f"/api/v1/nodes/{name}")
    except ApiError as error:
        remedy = "set NODE_NAME from spec.nodeName, or give --node-name; the account needs `get` of nodes"
        return {}, [*findings, Diagnosis("missing", f"Node {name}", str(error), remedy)]
    return node, [*findings, _kubelet_version(node, name)]


def _served(api: KubeApi, release: str) -> Iterator[Diagnosis]:
    try:
        api.get("/apis/resource.k8s.io/v1")
        profile = ServerProfile.of(release)
    except (ApiError, SettingsError) as error:
        yield Diagnosis("missing", "API server", f"{release} does not serve resource.k8s.io/v1: {error}", _MINIMUM)
        return
    yield Diagnosis("ok", "API server", f"{release} serves resource.k8s.io/v1")
    if off := [name for name in GATES if name not in profile.gates and GATES[name][0] <= profile.minor]:
        yield Diagnosis(
            "unknown",
            "feature gates of the API server",
            f"off in {release} unless switched on: {', '.join(off)}",
            "kubectl get --raw /metrics has kubernetes_feature_enabled; drivers' READMEs name what they need",
        )


def _kubelet_version(node: Mapping[str, Any], name: str) -> Diagnosis:
    version = str(node.get("status", {}).get("nodeInfo", {}).get("kubeletVersion", ""))
    match = re.match(r"v?(\d+)\.(\d+)", version)
    subject = f"kubelet of {name}"
    if match is None:
        return Diagnosis("unknown", subject, "the Node does not tell its version", "kubelet --version on the node")
    if (int(match[1]), int(match[2])) < _OLDEST_KUBELET:
        return Diagnosis("missing", subject, f"is {version}", "upgrade it to 1.34 or later")
    return Diagnosis("ok", subject, f"is {version}")


def permissions(api: KubeApi) -> Iterator[Diagnosis]:
    """Yield what the account of these credentials may do, of what a driver asks for."""
    refused = []
    for group, resource, verb in PERMISSIONS:
        attributes = {"group": group, "resource": resource, "verb": verb}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        try:
            answer = api.create("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
        except ApiError as error:
            yield Diagnosis("unknown", "permissions", str(error), "kubectl auth can-i --list as the driver's account")
            return
        if not answer.get("status", {}).get("allowed"):
            refused.append(f"{verb} {resource}")
    if refused:
        remedy = "apply the objects of `dra-sdk manifests DRIVER`, and use its account"
        yield Diagnosis("missing", "permissions", f"this account may not {', '.join(refused)}", remedy)
    else:
        yield Diagnosis("ok", "permissions", "this account may all that every driver asks for")
