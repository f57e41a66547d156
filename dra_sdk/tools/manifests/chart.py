"""The chart: its values, its templates, and the objects that they become."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from dra_sdk.tools.manifests.go_template import Function, Renderer, Template, shown
from dra_sdk.tools.manifests.values import read_values

JSON = dict[str, Any]
RELEASE: Final = "dra-sdk"
"""The name of a release and of its namespace by default."""
CHART: Final = Path(__file__).parent / "chart"
"""The chart that the SDK brings along: `deploy/chart` of the repository."""
_ORDER: Final = (
    "Namespace",
    "PriorityClass",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "SecurityContextConstraints",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
    "DeviceClass",
    "NetworkPolicy",
    "ConfigMap",
    "DaemonSet",
    "PodMonitor",
    "PrometheusRule",
)
_SEPARATOR: Final = re.compile(r"^---$", re.MULTILINE)
_FORMAT: Final = re.compile(r"%[sqd]")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of the chart.

    source: the path of its template in the chart.
    text: its YAML, with comments.
    """

    source: str
    text: str

    @property
    def object(self) -> JSON:
        """The API object."""
        return dict(yaml.safe_load(self.text))


class Chart:
    """A Helm chart of the kind of `deploy/chart`.

    path: its directory.
    """

    def __init__(self, path: Path = CHART) -> None:
        self._path = path
        self._metadata: JSON = yaml.safe_load((path / "Chart.yaml").read_text())
        self.defaults: JSON = yaml.safe_load((path / "values.yaml").read_text())

    def render(self, *values: Mapping[str, Any], release: str = RELEASE, namespace: str = RELEASE) -> list[Manifest]:
        """Return the objects of a release, in an order in which they can be applied: each after what it needs.

        Objects that Helm makes only at certain times, its hooks, are left out: who applies objects has no such times.
        Later mappings of values take precedence over earlier ones, and all over values.yaml. SettingsError for values
        that the chart does not take.
        """
        merged = self.defaults
        for override in values:
            merged = merge_values(merged, override)
        read_values(merged)
        files = sorted((self._path / "templates").iterdir())
        templates = [Template(f"templates/{file.name}", file.read_text()) for file in files]
        renderer = Renderer(templates, _FUNCTIONS)
        name = {"Name": release, "Namespace": namespace}
        about = {"Name": self._metadata["name"], "AppVersion": self._metadata["appVersion"]}
        data = {"Values": merged, "Release": name, "Chart": about, "Files": _ChartFiles(self._path)}
        manifests = [
            Manifest(template.name, text.strip())
            for template in templates
            if template.name.endswith(".yaml")
            for text in _SEPARATOR.split(renderer.render(template, data))
            if text.strip()
        ]
        lasting = [manifest for manifest in manifests if not _is_hook(manifest.object)]
        return sorted(lasting, key=lambda manifest: _ORDER.index(manifest.object["kind"]))


def _is_hook(obj: JSON) -> bool:
    return "helm.sh/hook" in obj["metadata"].get("annotations", {})


class _ChartFiles:
    """`.Files` of a template."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def Get(self, name: str) -> str:  # noqa: N802 (the name in templates)
        """Return the text of a file of the chart."""
        return (self._path / name).read_text()


def merge_values(below: Mapping[str, Any], above: Mapping[str, Any]) -> JSON:
    """Merge values over other values, as Helm does: maps by key, everything else as a whole; null removes a value."""
    merged = copy.deepcopy(dict(below))
    for key, value in above.items():
        if value is None and key in merged:
            del merged[key]
        elif isinstance(value, Mapping) and isinstance(merged.get(key), Mapping):
            merged[key] = merge_values(merged[key], value)
        else:
            merged[key] = copy.deepcopy(value)
    return merged


# -- functions of templates


def _yaml(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=False, width=10_000, allow_unicode=True)
    return text.removesuffix("...\n").removesuffix("\n")


def _overwritten(target: JSON, other: Mapping[str, Any]) -> JSON:
    for key, value in other.items():
        if isinstance(value, Mapping) and isinstance(target.get(key), dict):
            _overwritten(target[key], value)
        else:
            target[key] = value
    return target


def _set(target: JSON, key: str, value: Any) -> JSON:
    target[key] = value
    return target


def _quoted(value: Any) -> str:
    escaped = shown(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def _printf(form: str, *values: Any) -> str:
    parts = iter(values)
    return _FORMAT.sub(lambda match: _quoted(next(parts)) if match[0] == "%q" else shown(next(parts)), form)


_FUNCTIONS: Final[dict[str, Function]] = {
    "append": lambda values, value: [*values, value],
    "deepCopy": copy.deepcopy,
    "default": lambda value, given=None: given or value,
    "dict": lambda *pairs: dict(zip(pairs[::2], pairs[1::2], strict=True)),
    "eq": lambda first, *others: first in others,
    "fromYaml": yaml.safe_load,
    "get": lambda target, key: target.get(key, ""),
    "hasPrefix": lambda prefix, text: text.startswith(prefix),
    "int": int,
    "list": lambda *values: list(values),
    "lookup": lambda *_: {},  # as without a cluster
    "mergeOverwrite": _overwritten,
    "ne": lambda one, other: one != other,
    "not": lambda value: not value,
    "nindent": lambda spaces, text: f"\n{text}".replace("\n", "\n" + " " * spaces),
    "printf": _printf,
    "quote": _quoted,
    "set": _set,
    "toString": shown,
    "toYaml": _yaml,
}
