"""What the container runtime must have: CDI, its directories, and NRI."""

from __future__ import annotations

import os
import re
import socket
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from dra_sdk.node.nri.plugin import socket_below
from dra_sdk.tools.doctor.diagnosis import Diagnosis, NodePaths

CONTAINERD_CONFIG: Final = "etc/containerd/config.toml"
_CONTAINERD_2: Final = 2
_CDI_DIRS: Final = ("/etc/cdi", "/var/run/cdi")
_CRI: Final = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
_NRI: Final = "io.containerd.nri.v1.nri"
_CONNECT_SECONDS: Final = 2.0


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
            yield _without_config(file, paths.cdi, number)
        except (OSError, tomllib.TOMLDecodeError) as error:
            yield Diagnosis("unknown", "CDI", f"cannot read {file}: {error}", "mend the file, or run it as root")
        else:
            yield _cdi(config, file, number)
            yield _cdi_directory(config, paths.cdi)
    needed = nri or paths.nri is not None
    if needed or not paths.in_pod:  # a pod that does not need it has no mount of it
        yield _nri(paths.nri or socket_below(paths.root), needed=needed)


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


def _without_config(file: Path, cdi: Path, version: str) -> Diagnosis:
    """Return a finding for an absent file: it may be elsewhere, or not visible in a pod; only the default is known."""
    asking = "`crictl info` on the node shows enableCDI and cdiSpecDirs"
    if not version:
        return Diagnosis("unknown", "CDI", f"on in containerd 2, off in 1.7; there is no {file} here", asking)
    if _major(version) < _CONTAINERD_2:
        return Diagnosis("unknown", "CDI", f"by default off in containerd {version}; there is no {file} here", asking)
    on = f"by default on in containerd {version}"
    if not _is_among(cdi, _CDI_DIRS):
        found = f"{on}, which reads {' and '.join(_CDI_DIRS)}, not {cdi}; there is no {file} here"
        return Diagnosis("unknown", "CDI", found, asking)
    return Diagnosis("ok", "CDI", f"{on}, which reads {cdi}; its configuration is not visible here")


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
    if _is_among(cdi, read):
        return Diagnosis("ok", subject, f"containerd reads {cdi}")
    remedy = f"add {cdi} to cdi_spec_dirs and restart containerd, or give --cdi-dir one of these"
    return Diagnosis("missing", subject, f"containerd reads {', '.join(read)}, not {cdi}", remedy)


def _is_among(directory: Path, others: Iterable[str]) -> bool:
    return _normal(str(directory)) in map(_normal, others)


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
