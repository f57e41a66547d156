"""The reference pages of the site, made of the code: signatures, docstrings, help texts, metrics, feature gates."""

from __future__ import annotations

import ast
import contextlib
import inspect
import io
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from prometheus_client.parser import text_string_to_metric_families

from dra_sdk.cli.main import COMMANDS, main
from dra_sdk.hookspecs import OF_CONTAINERS, REQUIRED, DriverHooks
from dra_sdk.loader import load_driver
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.wire.profile import GATES, NEWEST, OLDEST
from tests.embedded import settings_for

_COLUMNS: Final = "100"
_FIELD: Final = re.compile(r"^(\w+): (.*)$")

#: What each feature gate is about, and the page that shows it at work.
FEATURES: Final = {
    "DRAAdminAccess": ("claims of administrators see devices that others hold", ""),
    "DRAConsumableCapacity": (
        "one device for many claims, each with a share (KEP-5075)",
        "../how-to/consumable-capacity.md",
    ),
    "DRADerivedAttributes": ("attributes that CEL computes from others", ""),
    "DRADeviceBindingConditions": ("pods wait until a device is ready (KEP-5007)", "../how-to/binding-conditions.md"),
    "DRADeviceCompatibilityGroups": ("which partitions of one card work side by side", ""),
    "DRADeviceTaintRules": ("an administrator taints devices", "../how-to/health-and-taints.md"),
    "DRADeviceTaints": ("taints on published devices (KEP-5055)", "../how-to/health-and-taints.md"),
    "DRAExtendedResource": ("`nvidia.com/gpu: 1` served by a DeviceClass", "../how-to/from-a-device-plugin.md"),
    "DRAFractionalCapacityRange": ("steps of a capacity in thousandths", ""),
    "DRAListTypeAttributes": ("attributes that are lists (KEP-5491)", ""),
    "DRANodeAllocatableResources": ("devices that count as CPU or memory of their node (KEP-5517)", ""),
    "DRAOptionalNodeOperations": ("slices whose devices need no prepare on the node", ""),
    "DRAPartitionableDevices": ("devices that overlap on one card (KEP-4815)", "../how-to/partitionable-devices.md"),
    "DRAPartitionableDevicesType": ("the attribute that tells what kind a partition is", ""),
    "DRAPrioritizedList": ("the first of several alternatives (KEP-4816)", ""),
    "DRAResourceClaimDeviceStatus": ("drivers write `status.devices` (KEP-4817)", ""),
}

#: Gates that change nothing in what a driver publishes: the release that added each, the one that turned it on by
#: default (None: not yet), what it is about, and a page. Source: pkg/features/kube_features.go of 1.34 to 1.37.
OTHERS: Final[dict[str, tuple[int, int | None, str, str]]] = {
    "DRAResourceClaimGranularStatusAuthorization": (
        36,
        36,
        "writing `status.devices` needs the right to `resourceclaims/driver`, too",
        "../install.md#what-it-may-do",
    ),
    "DRAResourcePoolStatus": (36, None, "a ResourcePoolStatusRequest asks what is free in a pool (KEP-5677)", ""),
    "DRASchedulerFilterTimeout": (34, 34, "the scheduler gives up a search after 10 s for each node", ""),
    "DRAWorkloadResourceClaims": (36, None, "one claim from a template for a whole PodGroup (KEP-5729)", ""),
    "KubeletPodResourcesDynamicResources": (34, 34, "the kubelet's PodResources API lists devices of claims", ""),
    "NodeDeclaredFeatures": (
        35,
        36,
        "nodes declare what they can do, as `skipNodeOperations` needs (KEP-5328)",
        "../simulate.md#what-is-different-in-137",
    ),
    "ResourceHealthStatus": (
        34,
        36,
        "the health of devices in the status of pods (KEP-4680)",
        "../how-to/health-and-taints.md",
    ),
    "ResourceHealthStatusMessage": (
        36,
        36,
        "the health of devices, with the driver's message",
        "../how-to/health-and-taints.md",
    ),
}


def hooks() -> str:
    """Return the hooks, with their contract."""
    module = inspect.getmodule(DriverHooks)
    parts = [f"# Hooks\n\n{_prose(module.__doc__ or '')}\n"]
    for name, hook in inspect.getmembers(DriverHooks, inspect.isfunction):
        if name.startswith("dra_"):
            kind = (
                "required" if name in REQUIRED else "for pods and containers" if name in OF_CONTAINERS else "optional"
            )
            parts.append(f"## {name}\n\n*{kind}*\n\n{_signature(name, hook)}\n{_prose(inspect.getdoc(hook) or '')}\n")
    return "\n".join(parts)


def names(title: str, *modules: str) -> str:
    """Return the public names of modules."""
    parts = [f"# {title}\n"]
    for path in modules:
        module = import_module(path)
        parts.append(
            f"## {path}\n\n{_prose(inspect.getdoc(module) or '')}\n"
            if len(modules) > 1
            else _prose(module.__doc__ or "")
        )
        parts.extend(_name("###" if len(modules) > 1 else "##", module, name) for name in public_names(module))
    return "\n".join(parts)


def public_names(module: ModuleType) -> list[str]:
    """`__all__`, or the public classes and functions that a module defines."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed, key=str.lower)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    ]


def commands() -> str:
    """Return the help of each command."""
    parts = ["# Commands\n\nWhat each command prints with `--help`.\n"]
    calls = [[], *([name] for name in COMMANDS), ["cpu", "top"]]
    parts += [f"## {' '.join(['dra-sdk', *words])}\n\n```text\n{_help(words)}```\n" for words in sorted(calls)]
    return "\n".join(parts)


def _help(words: list[str]) -> str:
    before = {name: os.environ.get(name) for name in ("COLUMNS", "NO_COLOR")}
    os.environ.update(COLUMNS=_COLUMNS, NO_COLOR="1")
    out = io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main([*words, "--help"])
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    return out.getvalue()


def metrics() -> str:
    """Return the metrics of a driver that runs: the CPU driver in an embedded cluster, which has those of NRI too."""
    logging.disable(logging.WARNING)  # that there is no container runtime
    try:
        with EmbeddedCluster() as cluster, DriverProcess(load_driver("cpu"), settings_for(cluster)) as process:
            cluster.kubelet.wait_for_driver("dra.cpu")
            cluster.wait_slices("dra.cpu")
            text = process.metrics.text().decode()
    finally:
        logging.disable(logging.NOTSET)
    rows = [
        f"| `{family.name}{'_total' if family.type == 'counter' else ''}` | {family.type} | {family.documentation} |"
        for family in text_string_to_metric_families(text)
        if not family.name.endswith("_created") or family.name == "dra_sdk_slices_created"
    ]
    return "\n".join(
        [
            "# Metrics\n",
            "What a driver serves at `/metrics`, each with the label `driver`.",
            "[Installing a driver](../install.md#watching-it) says which ones to watch.\n",
            "| metric | type | what |",
            "|---|---|---|",
            *sorted(rows),
            "",
        ]
    )


def releases() -> str:
    """Return the page docs/reference/releases.md, from the table by which the SDK checks objects.

    A test compares both.
    """
    published = [(gate, *GATES[gate], *FEATURES[gate]) for gate in GATES]
    others = [(gate, *row) for gate, row in OTHERS.items()]
    text = """# Kubernetes releases and features

`resource.k8s.io/v1` exists since Kubernetes 1.34, so that is the oldest release that the SDK supports. Newer features
have feature gates.

**on**: the gate is on by default. off: an administrator can turn it on, on the API server, the scheduler and the
kubelet. no: the release does not have the feature.

## What slices and claims may have

A driver that uses a feature publishes it to every server; a server whose gate is off drops the fields, and the driver's
log says so. The table is the one by which `dra-sdk validate --server-version` judges objects, printed by
`python -m docs.site.reference`.
"""
    further = """
## What else the cluster does

These gates change nothing in the objects that a driver writes, but what its users and its operator see.
"""
    return "\n".join([text, *_matrix(published), further, *_matrix(others), ""])


def _matrix(gates: Iterable[tuple[str, int, int | None, str, str]]) -> Iterator[str]:
    """Yield the rows of a table: gate, release that added it, release that turned it on, what it is about, page."""
    minors = range(OLDEST, NEWEST + 1)
    yield f"| feature | gate | {' | '.join(f'1.{minor}' for minor in minors)} |"
    yield f"|---|---|{'---|' * len(minors)}"
    rows = []
    for gate, added, default, what, page in gates:
        cells = ["no" if minor < added else "**on**" if default and minor >= default else "off" for minor in minors]
        rows.append(f"| {f'[{what}]({page})' if page else what} | `{gate}` | {' | '.join(cells)} |")
    yield from sorted(rows)


PAGES: Final[dict[str, Callable[[], str]]] = {
    "reference/hooks.md": hooks,
    "reference/model.md": lambda: names(
        "What a driver imports", "dra_sdk", "dra_sdk.settings", "dra_sdk.nri", "dra_sdk.extensions"
    ),
    "reference/hardware.md": lambda: names(
        "Building blocks",
        "dra_sdk.hardware",
        *(f"dra_sdk.hardware.{name}" for name in _modules("dra_sdk.hardware")),
    ),
    "reference/testing.md": lambda: names(
        "Tools for tests",
        "dra_sdk.testing",
        "dra_sdk.testing.crashes",
        "dra_sdk.testing.node_state",
        "dra_sdk.testing.sysfs",
        "dra_sdk.testing.uevents",
    ),
    "reference/commands.md": commands,
    "reference/metrics.md": metrics,
}


def _modules(package: str) -> list[str]:
    """Return the modules of a package with names that the package itself does not have."""
    directory = Path(import_module(package).__path__[0])
    own = set(import_module(package).__all__)
    names = sorted(path.stem for path in directory.glob("*.py") if not path.stem.startswith("_"))
    return [name for name in names if not own.intersection(public_names(import_module(f"{package}.{name}")))]


def _name(heading: str, module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if inspect.isclass(value):
        return _class(heading, name, value)
    if inspect.isfunction(value):
        return f"{heading} {name}\n\n{_signature(name, value)}\n{_prose(inspect.getdoc(value) or '')}\n"
    source, text = _documented(module.__name__.partition(".")[0]).get(name, ("", ""))
    code = f"```python\n{source}\n```\n" if source else ""
    return f"{heading} {name}\n\n{code}\n{_prose(text)}\n"


def _class(heading: str, name: str, value: type) -> str:
    own = [field.name for field in fields(value) if not field.name.startswith("_")] if is_dataclass(value) else []
    parts = [f"{heading} {name}\n"]
    if is_dataclass(value) and own:
        parts.append(_signature(name, value))
    parts.append(_prose(inspect.getdoc(value) or "", own))
    for attribute, member in vars(value).items():
        function = getattr(member, "__func__", getattr(member, "fget", member))
        if not attribute.startswith("_") and inspect.isfunction(function) and function.__doc__:
            label = f"{name}.{attribute}"
            text = " ".join((inspect.getdoc(function) or "").split())
            call = "" if isinstance(member, property) else _arguments(function)
            parts.append(f"- `{label}{call}`: {_escaped(text)}")
    return "\n".join([*parts, ""])


def _arguments(function: Callable[..., Any]) -> str:
    shown = str(inspect.signature(function)).replace("'", "")
    return re.sub(r"\((?:self|cls)(?:, )?", "(", shown, count=1).replace("dra_sdk.model.", "")


def _signature(name: str, value: Callable[..., Any]) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [_plain(str(parameter)) for parameter in signature.parameters.values() if parameter.name != "self"]
    ending = signature.return_annotation
    returned = "" if ending is signature.empty or inspect.isclass(value) else f" -> {str(ending).strip(chr(39))}"
    line = f"{name}({', '.join(parameters)}){returned}"
    if len(line) > int(_COLUMNS):
        line = "\n".join([f"{name}(", *(f"    {parameter}," for parameter in parameters), f"){returned}"])
    return f"```python\n{line}\n```\n"


def _plain(text: str) -> str:
    """Return a parameter without quotes around its type, and without the address of a default."""
    return re.sub(r"= <.*>$", "= …", text.replace("'", ""))


def _prose(text: str, known: list[str] | None = None) -> str:
    """Return a docstring as Markdown: its lines `name: …` are a table."""
    return "\n".join(_paragraphs(inspect.cleandoc(text), known)) + "\n"


def _paragraphs(text: str, known: list[str] | None) -> Iterator[str]:
    for paragraph in re.split(r"\n{2,}", text):
        rows: list[list[str]] = []
        for line in paragraph.splitlines():
            field = _FIELD.match(line)
            if field and (known is None or field[1] in known) and (rows or line == paragraph.splitlines()[0]):
                rows.append([field[1], field[2]])
            elif rows:
                rows[-1][1] += f" {line.strip()}"
        if rows and rows[0][0] not in {"Source", "Raises", "Example"}:
            cells = (f"| `{name}` | {_escaped(what)} |".replace(" | | ", " \\| ") for name, what in rows)
            yield "\n".join(["| name | what |", "|---|---|", *cells, ""])
        else:
            yield _escaped(paragraph) + "\n"


def _escaped(text: str) -> str:
    """Return text without HTML: `<` outside of code would begin a tag, and `*` a list or emphasis."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([<*|_])", r"\\\1", part) for part in parts)


@cache
def _documented(package: str) -> dict[str, tuple[str, str]]:
    """Return the assignments of a package that a docstring follows: source and docstring by name."""
    assignments: dict[str, tuple[str, str]] = {}
    for path in sorted(Path(import_module(package).__path__[0]).rglob("*.py")):
        if path.name.endswith("_pb2.py"):
            continue
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for statement, following in zip(body, [*body[1:], ast.Pass()], strict=True):
            text = _text(following)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name) and text:
                assignments.setdefault(statement.targets[0].id, (ast.unparse(statement), text))
            elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                assignments.setdefault(statement.target.id, (ast.unparse(statement), text))
    return assignments


def _text(statement: ast.stmt) -> str:
    """Return the docstring that a statement is; empty if it is none."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return statement.value.value if isinstance(statement.value.value, str) else ""
    return ""


if __name__ == "__main__":
    print(releases(), end="")
