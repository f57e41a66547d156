"""Every setting of a driver process: one table, read from flags, the environment and a file.

A flag wins over its environment variable, which wins over the file, which wins over the default. The file is one YAML
mapping, keys as in the table (`kubeletDir: /var/lib/kubelet`), and a section `driver` for the driver's own settings
(`dra_sdk.model.settings`). Its values are read as text, so that `off` is no boolean and a node called 007 keeps its
name.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
from collections.abc import Callable, Collection, Container, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import yaml

from dra_sdk.errors import SettingsError
from dra_sdk.input_files import read_limited
from dra_sdk.model.device import TaintEffect
from dra_sdk.model.settings import KUBELET_DIR, SECTION, SettingsFile

CONFIG = "DRA_SDK_CONFIG"
_NOTHING: Final = ("", "~", "null")
FILE_LIMIT: Final = 256 * 1024
"""Bytes of a settings file."""
_DAY = 86400
Serve = Literal["both", "common", "registration", "service"]
Taint = Literal["None", "NoSchedule", "NoExecute", "off"]
LogLevel = Literal["debug", "info", "warning", "error"]
Switch = Literal["on", "off"]
LogFormat = Literal["text", "json"]
_NODE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NODE_NAME_LIMIT: Final = 253  # characters
_UID: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:]{0,63}")  # it becomes part of file names
_PORT_LIMIT: Final = 65535


def path(text: str) -> Path:
    """Read a path and make it absolute: the kubelet reads it too, from another working directory."""
    if not text:
        raise ValueError("must not be empty")
    return Path(text).absolute()


def seconds(text: str) -> float:
    """Read a time span in seconds."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _DAY:
        raise ValueError(f"must be a number of seconds from 0 to {_DAY}")
    return value


def node_name(text: str) -> str:
    """Read the name of a Node, or nothing."""
    if text and not (_NODE_NAME.fullmatch(text) and len(text) <= _NODE_NAME_LIMIT):
        raise ValueError(
            f"must be a DNS subdomain (lower-case letters, digits, inner '-' and '.', "
            f"at most {_NODE_NAME_LIMIT} characters)"
        )
    return text


def pod_uid(text: str) -> str:
    """Read the UID of a pod, or nothing."""
    if text and not _UID.fullmatch(text):
        raise ValueError("must be a pod's metadata.uid (letters, digits, '-', '.', '_' and ':', at most 64 characters)")
    return text


def address(text: str) -> str:
    """Read a host and a port to listen on, or nothing; without a host it is every address of the machine."""
    _, colon, port = text.rpartition(":")
    if text and not (colon and port.isdecimal() and int(port) <= _PORT_LIMIT):
        raise ValueError(f"must be host:port or :port, with a port from 0 to {_PORT_LIMIT}")
    return text


def nri_index(text: str) -> int:
    """Read the place of an NRI plugin among others."""
    if not re.fullmatch(r"[0-9]{1,2}", text, re.ASCII):
        raise ValueError("must be a number from 0 to 99")
    return int(text)


def log_level(text: str) -> str:
    """Read from which level on messages are logged; in capitals too."""
    return one_of(LogLevel)(text.lower())


def one_of(words: Any) -> Callable[[str], str]:
    """Return a function that reads one of the words of a Literal."""
    choices = get_args(words)

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"is not one of {', '.join(choices)}")
        return text

    return read


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table.

    name: the attribute of Settings.
    env: the environment variable.
    help: what it means.
    type: reads the value from text; raises ValueError with the reason.
    metavar: what stands for the value in help.
    """

    name: str
    env: str
    help: str
    type: Callable[[str], Any] = str
    metavar: str = ""

    @property
    def flag(self) -> str:
        """The command-line flag."""
        return "--" + self.name.replace("_", "-")

    @property
    def key(self) -> str:
        """The key in a settings file."""
        first, *others = self.name.split("_")
        return first + "".join(word.capitalize() for word in others)

    @property
    def default(self) -> Any:
        """The value without a setting: that of Settings, and nothing for the name of the node."""
        default = Settings.__dataclass_fields__[self.name].default
        return "" if default is MISSING else default

    def given(self, text: str) -> Any:
        """Return the value of its flag. ArgumentTypeError with the reason; argparse would drop that of a ValueError."""
        try:
            return self.type(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error

    def read(self, environment: Mapping[str, str], file: Mapping[str, str], name: Path | None = None) -> Any:
        """Return the value of the environment, of the file `name`, or the default; SettingsError for a wrong one."""
        for source, text in (
            (f"environment variable {self.env}", environment.get(self.env, "")),
            (f"setting {self.key} of settings file {name}", file.get(self.key, "")),
        ):
            if text:
                try:
                    return self.type(text)
                except ValueError as error:
                    raise SettingsError(f"{source}={text!r}: {error}") from error
        return self.default


SETTINGS = (
    Setting("node_name", "NODE_NAME", "name of this node; by default the host name", node_name, "NAME"),
    Setting("kubeconfig", "KUBECONFIG", "kubeconfig file; by default the pod's service account", path, "FILE"),
    Setting("kubelet_dir", "DRA_SDK_KUBELET_DIR", "the kubelet's root directory", path, "DIR"),
    Setting(
        "registry_dir",
        "DRA_SDK_REGISTRY_DIR",
        "where the registration socket is made: plugins_registry of the kubelet's directory (default), or one below it",
        path,
        "DIR",
    ),
    Setting("cdi_dir", "DRA_SDK_CDI_DIR", "where CDI specs are written", path, "DIR"),
    Setting("host_root", "DRA_SDK_HOST_ROOT", "where the host's /sys, /proc and /dev are found", path, "DIR"),
    Setting(
        "pod_uid",
        "POD_UID",
        "UID of the driver's pod; switches rolling updates on (kubelet 1.33 and later)",
        pod_uid,
        "UID",
    ),
    Setting(
        "drain_seconds", "DRA_SDK_DRAIN_SECONDS", "how long calls under way may take at shutdown", seconds, "SECONDS"
    ),
    Setting(
        "serve",
        "DRA_SDK_SERVE",
        "sockets of this process: both, common, registration or service",
        one_of(Serve),
        "WHICH",
    ),
    Setting(
        "unhealthy_taint",
        "DRA_SDK_UNHEALTHY_TAINT",
        "taint of unhealthy devices: NoSchedule, NoExecute, None (tell only) or off",
        one_of(Taint),
        "EFFECT",
    ),
    Setting(
        "overlay_file",
        "DRA_SDK_OVERLAY_FILE",
        "YAML file that adds attributes and taints to devices, or leaves devices out",
        path,
        "FILE",
    ),
    Setting(
        "http_address",
        "DRA_SDK_HTTP_ADDRESS",
        "host:port for /metrics, /healthz and /readyz; off by default",
        address,
        "HOST:PORT",
    ),
    Setting(
        "nri_socket",
        "DRA_SDK_NRI_SOCKET",
        "the container runtime's socket for NRI plugins; by default /var/run/nri/nri.sock of the host",
        path,
        "FILE",
    ),
    Setting(
        "nri_index",
        "DRA_SDK_NRI_INDEX",
        "the driver's place among NRI plugins, 0 to 99; runtimes call the lowest first",
        nri_index,
        "INDEX",
    ),
    Setting(
        "events", "DRA_SDK_EVENTS", "whether the driver writes events about devices: on or off", one_of(Switch), "ON"
    ),
    Setting("log_level", "DRA_SDK_LOG_LEVEL", "debug, info, warning or error", log_level, "LEVEL"),
    Setting("log_format", "DRA_SDK_LOG_FORMAT", "text or json", one_of(LogFormat), "FORMAT"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of one process, with their defaults; SETTINGS has the rest. `driver` is what the file has for it."""

    node_name: str
    kubeconfig: Path | None = None
    kubelet_dir: Path = Path(KUBELET_DIR)
    registry_dir: Path | None = None
    cdi_dir: Path = Path("/var/run/cdi")
    host_root: Path = Path("/")
    pod_uid: str = ""
    drain_seconds: float = 20.0
    serve: Serve = "both"
    unhealthy_taint: Taint = "NoSchedule"
    overlay_file: Path | None = None
    http_address: str = ""
    nri_socket: Path | None = None
    nri_index: int = 50
    events: Switch = "on"
    log_level: str = "info"
    log_format: str = "text"
    driver: SettingsFile | None = None

    @property
    def registry(self) -> Path:
        """Where the registration socket is made. The kubelet looks in plugins_registry and in directories below it."""
        return self.registry_dir or self.kubelet_dir / "plugins_registry"

    @property
    def taint_effect(self) -> TaintEffect | None:
        """The effect of the taint on unhealthy devices, None for no taint."""
        return None if self.unhealthy_taint == "off" else self.unhealthy_taint

    def plugin_data(self, driver: str) -> Path:
        """Return the directory that belongs to one driver."""
        return self.kubelet_dir / "plugins" / driver


def add_flags(parser: argparse._ActionsContainer, only: Container[str] | None = None) -> None:
    """Add one flag per setting, or those of some by name, and `--config` for the file."""
    parser.add_argument("--config", type=path, metavar="FILE", help=f"YAML file with settings [${CONFIG}]")
    for setting in SETTINGS if only is None else [setting for setting in SETTINGS if setting.name in only]:
        shown = f" (default {setting.default})" if setting.default else ""
        text = f"{setting.help}{shown} [${setting.env}]"
        parser.add_argument(setting.flag, type=setting.given, metavar=setting.metavar, help=text)


def read_settings(flags: argparse.Namespace, environment: Mapping[str, str] | None = None) -> Settings:
    """Read the settings from parsed flags, the environment and the file. SettingsError names the one that is wrong."""
    variables = os.environ if environment is None else environment
    named = getattr(flags, "config", None) or (path(variables[CONFIG]) if variables.get(CONFIG) else None)
    file, driver = _read_file(named, {setting.key for setting in SETTINGS}) if named else ({}, None)
    values: dict[str, Any] = {"driver": driver}
    for setting in SETTINGS:
        given = getattr(flags, setting.name, None)
        values[setting.name] = setting.read(variables, file, named) if given is None else given
    if getattr(flags, "kubeconfig", None) is None and os.pathsep in variables.get("KUBECONFIG", ""):
        values["kubeconfig"] = None  # several files, which the API client reads together
    values["node_name"] = values["node_name"] or _host_name()
    return Settings(**values)


def _host_name() -> str:
    host = socket.gethostname().lower()
    try:
        return node_name(host)
    except ValueError as error:
        raise SettingsError(
            f"the host name {host!r} cannot be a node's name, which {error}: give --node-name"
        ) from error


def _read_file(path: Path, known: Collection[str]) -> tuple[dict[str, str], SettingsFile | None]:
    """Return the values by key, as text, and those of the driver's section.

    SettingsError names the file and the key or line that is wrong.
    """
    try:
        text = read_limited(path, FILE_LIMIT)
        content = yaml.load(text, yaml.BaseLoader)  # noqa: S506 (it makes text, lists and mappings only)
    except OSError as error:
        raise SettingsError(f"cannot read settings file {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"settings file {path} is not YAML: {_problem(error)}") from error
    except RecursionError as error:
        raise SettingsError(f"settings file {path} is nested too deeply") from error
    if not content:
        return {}, None
    if not isinstance(content, dict):
        raise SettingsError(f"settings file {path} must hold a mapping of settings, not {type(content).__name__}")
    driver = _driver_section(path, content.pop(SECTION, ""))
    for key, value in content.items():
        if key not in known:
            listed = ", ".join(sorted([*known, SECTION]))
            raise SettingsError(f"settings file {path}: unknown setting {key!r}; known are {listed}")
        if not isinstance(value, str):
            raise SettingsError(f"settings file {path}: {key} must be text or a number, is {value!r}")
    return {key: value for key, value in content.items() if value not in _NOTHING}, driver


def _driver_section(path: Path, section: Any) -> SettingsFile | None:
    """Return the section for the driver, which alone knows its keys; a list is text with commas."""
    if not section or section in _NOTHING:
        return None
    if not isinstance(section, dict):
        raise SettingsError(f"settings file {path}: {SECTION} must be a mapping of settings, is {section!r}")
    values = {}
    for key, value in section.items():
        items = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str) for item in items):
            raise SettingsError(
                f"settings file {path}: {SECTION}.{key} must be text, a number or a list of these, is {value!r}"
            )
        values[key] = ",".join(items)
    return SettingsFile(path, {key: value for key, value in values.items() if value not in _NOTHING})


def _problem(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).replace('in "<byte string>", ', "").split())
    return f"line {mark.line + 1}, column {mark.column + 1}: {getattr(error, 'problem', None) or error}"
