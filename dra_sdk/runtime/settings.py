"""Every setting of a driver process: one table, read from flags, the environment and a file.

A flag wins over its environment variable, which wins over the file, which wins over the default.
"""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from dra_sdk.errors import SettingsError
from dra_sdk.runtime.settings_file import read_settings_file

CONFIG = "DRA_SDK_CONFIG"
_DAY = 86400
Serve = Literal["both", "common", "registration", "service"]
Effect = Literal["None", "NoSchedule", "NoExecute"]
Taint = Literal["None", "NoSchedule", "NoExecute", "off"]


def path(text: str) -> Path:
    """An absolute path: the kubelet reads it too, from another working directory."""
    if not text:
        raise ValueError("must not be empty")
    return Path(text).absolute()


def seconds(text: str) -> float:
    """A time span."""
    value = float(text)
    if not 0 <= value <= _DAY:
        raise ValueError(f"must be from 0 to {_DAY} seconds")
    return value


def settings_table() -> str:
    """The table of all settings in Markdown, for the documentation."""
    rows = [
        f"| `{each.flag}` | `{each.env}` | `{each.key}` | {f'`{each.default}`' if each.default else ''} | {each.help} |"
        for each in SETTINGS
    ]
    return "\n".join(["| flag | environment | file | default | meaning |", "|---|---|---|---|---|", *rows]) + "\n"


def serve(text: str) -> Serve:
    """Which sockets a process opens."""
    chosen: Serve = _one_of(text, get_args(Serve))
    return chosen


def taint(text: str) -> Taint:
    """The effect of a taint, or off."""
    chosen: Taint = _one_of(text, get_args(Taint))
    return chosen


def _one_of(text: str, choices: tuple[Any, ...]) -> Any:
    if text not in choices:
        raise ValueError(f"is not one of {', '.join(choices)}")
    return text


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: attribute of Settings, environment variable, default and what it means."""

    name: str
    env: str
    default: Any
    help: str
    type: Callable[[str], Any] = str

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return "--" + self.name.replace("_", "-")

    @property
    def key(self) -> str:
        """The key in a settings file."""
        first, *others = self.name.split("_")
        return first + "".join(each.capitalize() for each in others)

    def read(self, environment: Mapping[str, str], file: Mapping[str, str]) -> Any:
        """The value from the environment, else the file, else the default; SettingsError if it cannot be read."""
        for source, text in (
            (f"environment variable {self.env}", environment.get(self.env, "")),
            (f"setting {self.key} of the settings file", file.get(self.key, "")),
        ):
            if text:
                try:
                    return self.type(text)
                except ValueError as error:
                    raise SettingsError(f"{source}={text!r}: {error}") from error
        return self.default


SETTINGS = (
    Setting("node_name", "NODE_NAME", "", "name of this node; by default the host name"),
    Setting("kubeconfig", "KUBECONFIG", None, "kubeconfig file; by default the pod's service account", path),
    Setting("kubelet_dir", "DRA_SDK_KUBELET_DIR", Path("/var/lib/kubelet"), "the kubelet's root directory", path),
    Setting("cdi_dir", "DRA_SDK_CDI_DIR", Path("/var/run/cdi"), "where CDI specs are written", path),
    Setting("host_root", "DRA_SDK_HOST_ROOT", Path("/"), "where the host's /sys, /proc and /dev are found", path),
    Setting("pod_uid", "POD_UID", "", "UID of the driver's pod; switches rolling updates on (kubelet 1.33 and later)"),
    Setting("drain_seconds", "DRA_SDK_DRAIN_SECONDS", 20.0, "how long calls under way may take at shutdown", seconds),
    Setting("serve", "DRA_SDK_SERVE", "both", "sockets of this process: both, common, registration or service", serve),
    Setting(
        "unhealthy_taint",
        "DRA_SDK_UNHEALTHY_TAINT",
        "NoSchedule",
        "taint of unhealthy devices: NoSchedule, NoExecute, None (tell only) or off",
        taint,
    ),
    Setting("overlay_file", "DRA_SDK_OVERLAY_FILE", None, "YAML file that adds attributes and taints to devices", path),
    Setting("http_address", "DRA_SDK_HTTP_ADDRESS", "", "host:port for /metrics, /healthz and /readyz; off by default"),
    Setting("log_level", "DRA_SDK_LOG_LEVEL", "info", "debug, info, warning or error"),
    Setting("log_format", "DRA_SDK_LOG_FORMAT", "text", "text or json"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one process; see SETTINGS for what each means."""

    node_name: str
    kubeconfig: Path | None = None
    kubelet_dir: Path = Path("/var/lib/kubelet")
    cdi_dir: Path = Path("/var/run/cdi")
    host_root: Path = Path("/")
    pod_uid: str = ""
    drain_seconds: float = 20.0
    serve: Serve = "both"
    unhealthy_taint: Taint = "NoSchedule"
    overlay_file: Path | None = None
    http_address: str = ""
    log_level: str = "info"
    log_format: str = "text"

    @property
    def registry(self) -> Path:
        """Where the kubelet looks for registration sockets."""
        return self.kubelet_dir / "plugins_registry"

    @property
    def taint_effect(self) -> Effect | None:
        """The effect of the taint on unhealthy devices, None for no taint."""
        return None if self.unhealthy_taint == "off" else self.unhealthy_taint

    def plugin_data(self, driver: str) -> Path:
        """The directory that belongs to one driver."""
        return self.kubelet_dir / "plugins" / driver


def add_flags(parser: argparse._ActionsContainer, only: Container[str] | None = None) -> None:
    """Add one flag per setting, or those of some by name, and `--config` for the file."""
    parser.add_argument("--config", type=path, default=None, help=f"YAML file with settings [${CONFIG}]")
    for each in SETTINGS if only is None else [each for each in SETTINGS if each.name in only]:
        shown = f" (default {each.default})" if each.default else ""
        parser.add_argument(each.flag, type=each.type, default=None, help=f"{each.help}{shown} [${each.env}]")


def read_settings(flags: argparse.Namespace, environment: Mapping[str, str] | None = None) -> Settings:
    """The settings from parsed flags, the environment and the file; SettingsError names what is wrong."""
    found = os.environ if environment is None else environment
    named = getattr(flags, "config", None) or (path(found[CONFIG]) if found.get(CONFIG) else None)
    file = read_settings_file(named, {each.key for each in SETTINGS}) if named else {}
    values = {}
    for each in SETTINGS:
        given = getattr(flags, each.name, None)
        values[each.name] = each.read(found, file) if given is None else given
    values["node_name"] = values["node_name"] or socket.gethostname().lower()
    return Settings(**values)
