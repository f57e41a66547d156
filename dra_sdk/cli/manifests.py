"""`dra-sdk manifests DRIVER…`: the objects that install drivers on a cluster, as YAML for `kubectl apply -f -`.

They are those of the Helm chart, rendered without Helm: namespace, account, role, admission policy, DaemonSet and
DeviceClasses of each driver. docs/install.md describes them; the values are those of the chart. A driver that the chart
does not know needs no more than its name; `--print-values` prints the values to give to Helm. With `--resource`, the
driver `device-plugin` gets a DeviceClass for each resource of a device plugin. It changes nothing, and needs no
cluster. Exit status: 0, or 2 for bad input.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from dra_sdk.cli.arguments import REPEATED, Commands, from_text
from dra_sdk.cli.hook_calls import load_driver
from dra_sdk.cli.output import print_lines, yaml_text
from dra_sdk.errors import SettingsError
from dra_sdk.input_files import MIB, read_limited
from dra_sdk.tools.manifests import RELEASE, Chart, merge_values

JSON = dict[str, Any]
_BRIDGE: Final = "device-plugin"
_LONGEST: Final = 64  # bytes of an attribute's value
_RESOURCE: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_KEY: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("manifests", help="print the objects that install drivers", description=__doc__)
    parser.add_argument(
        "drivers",
        nargs="*",
        metavar="DRIVER",
        help="cpu, gpu, gpu-amd, another name that `dra-sdk drivers` lists, or module:Class",
    )
    parser.add_argument(
        "--resource",
        type=_resource,
        **REPEATED,
        metavar="DOMAIN/NAME",
        help=f"for {_BRIDGE}: a resource of a device plugin, such as vendor.com/thing, which gets a DeviceClass",
    )
    parser.add_argument("-f", "--values", type=Path, **REPEATED, metavar="FILE", help="a file of values, as for Helm")
    parser.add_argument(
        "--set",
        type=_assignment,
        **REPEATED,
        metavar="PATH=VALUE",
        help=r"one value, such as drivers.cpu.nri=true; a dot within a key is `\.`, the value is YAML",
    )
    parser.add_argument(
        "--namespace", type=_name, default=RELEASE, metavar="NAME", help=f"namespace of the drivers (default {RELEASE})"
    )
    parser.add_argument(
        "--release",
        type=_name,
        default=RELEASE,
        metavar="NAME",
        help=f"first part of the names of objects that drivers share (default {RELEASE})",
    )
    parser.add_argument("--print-values", action="store_true", help="print the values, not the objects")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the objects, or the values."""
    chart = Chart()
    values: JSON = {} if arguments.print_values else {"namespace": {"create": True}}
    for name in arguments.drivers:
        values = merge_values(values, _entry(chart.defaults["drivers"], name))
    for given in [*map(_values_file, arguments.values), *arguments.set]:
        values = merge_values(values, given)
    if arguments.resource:
        values = merge_values(values, _classes(merge_values(chart.defaults, values), arguments.resource))
    rendered = chart.render(values, release=arguments.release, namespace=arguments.namespace)
    if arguments.print_values:
        print(yaml_text([values]), end="")
        return 0
    if not any(manifest.object["kind"] == "ServiceAccount" for manifest in rendered):
        raise SettingsError("no driver is switched on: name one, or give --values with `drivers.NAME.enabled: true`")
    print("\n---\n".join(f"# {manifest.source}\n{manifest.text}" for manifest in rendered))
    return 0


def _entry(known: JSON, name: str) -> JSON:
    """Return the values that switch a driver on: an entry of the chart by its key, or a new one for another driver."""
    if name in known:
        return {"drivers": {name: {"enabled": True}}}
    driver_name = load_driver(name).info.name
    for key, entry in known.items():
        if entry["driverName"] == driver_name:
            return {"drivers": {key: {"enabled": True, "run": name}}}
    key = name if _KEY.fullmatch(name) else driver_name.replace(".", "-")
    return {"drivers": {key: {"driverName": driver_name} | ({} if key == name else {"run": name})}}


def _classes(values: JSON, resources: list[str]) -> JSON:
    """Return the values that add a DeviceClass for each resource of a device plugin to those of the bridge."""
    entry = values["drivers"][_BRIDGE]
    if not entry["enabled"]:
        raise SettingsError(f"--resource is for the driver {_BRIDGE}: name it, too")
    driver = entry["driverName"]
    everything = {"name": driver, "expression": f'device.driver == "{driver}"'}
    classes = [
        {
            "name": re.sub(r"[^a-z0-9.]+", "-", f"{name.lower()}.{domain}"),
            "expression": f'device.driver == "{driver}" && device.attributes["{driver}"].resource == "{domain}/{name}"',
            "extendedResourceName": f"{domain}/{name}",
        }
        for domain, _, name in (resource.partition("/") for resource in resources)
    ]
    listed = ", ".join(resources)
    warning = (
        f"warning: a node's kubelet and the bridge must not both serve {listed}: each would give all devices away. "
        "Remove the device plugin from the kubelet's directory first"
    )
    print_lines([warning], sys.stderr)
    return {"drivers": {_BRIDGE: {"deviceClasses": [*entry.get("deviceClasses", [everything]), *classes]}}}


def _values_file(path: Path) -> JSON:
    try:
        values = yaml.safe_load(read_limited(path, MIB))
    except OSError as error:
        raise SettingsError(f"cannot read --values {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"--values {path} is no YAML: {error}") from error
    except RecursionError as error:
        raise SettingsError(f"--values {path} is nested too deeply") from error
    if not isinstance(values, dict | None):
        raise SettingsError(f"--values {path} must be a YAML mapping")
    return values or {}


@from_text
def _resource(text: str) -> str:
    if not _RESOURCE.fullmatch(text):
        raise ValueError("must be the name of an extended resource, such as vendor.com/thing")
    if len(text) > _LONGEST:
        raise ValueError(f"has {len(text)} characters; the selector of its DeviceClass can have {_LONGEST}")
    return text


@from_text
def _assignment(text: str) -> JSON:
    """Return `a.b=c` as nested maps."""
    path, equals, value = text.partition("=")
    keys = [key.replace(r"\.", ".") for key in re.split(r"(?<!\\)\.", path)]
    if not equals or not all(keys):
        raise ValueError("must be PATH=VALUE, such as drivers.cpu.nri=true")
    try:
        assigned = yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise ValueError(f"the value is no YAML: {error}") from error
    for key in reversed(keys):
        assigned = {key: assigned}
    return dict(assigned)


@from_text
def _name(text: str) -> str:
    if not _NAMESPACE.fullmatch(text):
        raise ValueError("must be a DNS label: lower-case letters, digits and inner '-', at most 63 characters")
    return text
