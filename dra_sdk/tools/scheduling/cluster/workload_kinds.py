"""Which kinds make pods: those of Kubernetes, of other projects, and of the rows in a user's file of `--workloads`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dra_sdk.errors import SettingsError
from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.foreign_kinds import FOREIGN
from dra_sdk.tools.scheduling.cluster.kubernetes_kinds import KUBERNETES
from dra_sdk.tools.scheduling.cluster.template_uses import KindKey, PodTemplateRow, TemplateUse, Uses, kind_key

BUILTIN: Final[Mapping[KindKey, Uses]] = {**KUBERNETES, **FOREIGN}
"""The kinds that are known without a file of the user."""


@dataclass(frozen=True, slots=True)
class WorkloadKinds:
    """The kinds that make pods.

    table: for each kind, what yields its templates.
    """

    table: Mapping[KindKey, Uses] = field(default_factory=lambda: BUILTIN)

    def uses(self, obj: JSON) -> Iterator[TemplateUse] | None:
        """Return the templates of an object, None if its kind is not known. WorkloadError for a field without a use."""
        uses = self.table.get(kind_key(obj))
        return None if uses is None else uses(obj)

    def with_rows(self, rows: Any, source: str) -> WorkloadKinds:
        """Return the kinds with those of a user's file: a list of objects with `kind`, `group` and the fields of a row.

        SettingsError for anything else.
        """
        table = dict(self.table)
        for index, row in enumerate(rows if isinstance(rows, list) else [rows]):
            table.update(_row(row, f"{source}: item {index}"))
        return WorkloadKinds(table)


def _row(row: Any, where: str) -> dict[KindKey, Uses]:
    if not isinstance(row, dict) or not isinstance(row.get("kind"), str):
        raise SettingsError(f"{where} must be an object with kind, group and the paths of its pod template")
    known = {"kind", "group", "template", "replicas", "items", "item", "name", "default"}
    if unknown := ", ".join(sorted(map(str, set(row) - known))):
        raise SettingsError(f"{where}: unknown field {unknown}; known are {', '.join(sorted(known))}")
    values = {key: value for key, value in row.items() if key not in {"kind", "group"}}
    replicas = values.get("replicas", ["spec.replicas"])
    values["replicas"] = tuple(replicas) if isinstance(replicas, list) else (replicas,)
    texts = [*(values[key] for key in ("template", "items", "item", "name") if key in values), *values["replicas"]]
    if not all(isinstance(text, str) for text in texts) or type(values.get("default", 1)) is not int:
        raise SettingsError(f"{where}: paths and names must be strings, and default a whole number")
    made = PodTemplateRow(**values)
    try:
        made.name.format(name="", item="", index=0)
    except (KeyError, IndexError, ValueError) as error:
        raise SettingsError(f"{where}: name may use {{name}}, {{item}} and {{index}}, is {made.name!r}") from error
    return {(str(row.get("group") or ""), row["kind"]): made.uses}
