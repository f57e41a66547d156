"""Write dra_sdk/tools/scheduling/cluster/builtin_types.json from the OpenAPI specifications of Kubernetes releases.

    python tests/tools/scheduling/cluster/make_builtin_types.py 36=…/1.36/swagger.json 37=…/1.37/swagger.json

The specification is `api/openapi-spec/swagger.json` of the Kubernetes source. Later releases win; a field that the
first one lacks is noted with the release that adds it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parents[4] / "dra_sdk/tools/scheduling/cluster/builtin_types.json"
ROOTS = {
    "v1": ("Pod", "Node", "Namespace", "ReplicationController", "ResourceQuota"),
    "apps/v1": ("DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"),
    "batch/v1": ("CronJob", "Job"),
    "policy/v1": ("PodDisruptionBudget",),
    "scheduling.k8s.io/v1": ("PriorityClass",),
    "scheduling.k8s.io/v1alpha2": ("PodGroup", "Workload"),
    "scheduling.k8s.io/v1beta1": ("PodGroup", "Workload"),
}
"""The kinds whose fields are written, of the releases that have them; of all other kinds, only the names are."""
OPTIONS = {"DeleteOptions", "WatchEvent", "Status", "APIGroup", "APIVersions", "APIResourceList"}
SCALARS = {"Quantity": "quantity", "Time": "string", "MicroTime": "string", "IntOrString": "int-or-string"}


def short(name: str) -> str:
    """The last part of a type's name."""
    return name.rsplit(".", 1)[-1]


def text_of(schema: dict[str, Any]) -> str:
    """A type as text: `[T` for a list, `{T` for a map, else the name."""
    if "$ref" in schema:
        name = short(schema["$ref"])
        return SCALARS.get(name, name)
    if schema.get("type") == "array":
        return "[" + text_of(schema["items"])
    if schema.get("type") == "object":
        return "{" + text_of(schema["additionalProperties"]) if "additionalProperties" in schema else "any"
    return str(schema.get("type", "any"))


def kind_names(definitions: dict[str, Any]) -> dict[tuple[str, str], str]:
    """The name of the type of each API version and kind."""
    return {
        ("/".join(filter(None, (group_kind["group"], group_kind["version"]))), group_kind["kind"]): name
        for name, schema in definitions.items()
        for group_kind in schema.get("x-kubernetes-group-version-kind", ())
    }


def referred(schema: dict[str, Any]) -> list[str]:
    """The types of the fields of a type."""
    types = []
    for schema_of_field in schema.get("properties", {}).values():
        inner = schema_of_field
        while "$ref" not in inner and ("items" in inner or "additionalProperties" in inner):
            inner = inner.get("items") or inner["additionalProperties"]
        if "$ref" in inner:
            types.append(inner["$ref"].rsplit("/", 1)[1])
    return types


def main(arguments: list[str]) -> None:
    """Read the specifications, oldest first, and write the file."""
    kinds: dict[str, set[str]] = {}
    types: dict[str, dict[str, str]] = {}
    since: dict[str, int] = {}
    for number, argument in enumerate(arguments):
        minor, _, path = argument.partition("=")
        definitions = json.loads(Path(path).read_text(encoding="utf-8"))["definitions"]
        names = kind_names(definitions)
        for version, kind in names:
            if kind not in OPTIONS and not kind.endswith("List"):
                kinds.setdefault(version, set()).add(kind)
        wanted = ((version, kind) for version, roots in ROOTS.items() for kind in roots)
        todo = [names[root] for root in wanted if root in names]
        seen: dict[str, str] = {}
        while todo:
            name = todo.pop()
            if seen.setdefault(short(name), name) != name:
                raise ValueError(f"{seen[short(name)]} and {name} have the same short name")
            fields = {field: text_of(schema) for field, schema in definitions[name].get("properties", {}).items()}
            known = types.setdefault(short(name), {})
            if number:
                since |= {f"{short(name)}.{field}": int(minor) for field in fields if field not in known}
            known |= fields
            todo += [
                reference for reference in referred(definitions[name]) if short(reference) not in {*SCALARS, *seen}
            ]
    written = {"kinds": {key: sorted(kinds[key]) for key in sorted(kinds)}, "since": since, "types": types}
    TARGET.write_text(json.dumps(written, sort_keys=True, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
