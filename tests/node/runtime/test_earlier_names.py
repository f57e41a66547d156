"""Names of the release 5134cc5 that operators have written down: settings, metrics, reasons of events.

The names of the drivers are in their own samples (`dra_sdk.testing.node_state`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from dra_sdk import Gauge, HeldClaim, Node
from dra_sdk.loader import Driver
from dra_sdk.node.runtime import events
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.node.runtime.settings import CONFIG, SETTINGS
from dra_sdk.nri import Container, ContainerAdjustment
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.embedded import settings_for
from tests.lamps import NAME, LampDriver

RENAMED = {
    f"dra_sdk_{name}{{driver}}": f"dra_sdk_{name}_total{{driver}}"
    for name in (
        "slices_created",
        "slices_updated",
        "slices_deleted",
        "slice_errors",
        "nri_connections",
        "nri_failed_updates",
    )
}
"""Values that only grow were gauges; docs/install.md has both names of each."""
SAMPLE = Path(__file__).parents[1] / "samples/state-5134cc5/names.json"


class MeasuredLamps(LampDriver):
    """Has hooks about containers, so that there are the metrics of them as well."""

    def dra_create_container(self, container: Container, held: list[HeldClaim]) -> ContainerAdjustment:
        return ContainerAdjustment()

    def dra_metrics(self, node: Node) -> Iterator[Gauge]:
        yield Gauge("lamp_hours", "How long they have been on", 5.0, {"room": "hall"})


def settings() -> list[str]:
    """Flag, environment variable, and key of the file of each."""
    return [CONFIG, *(f"{setting.flag} {setting.env} {setting.key}" for setting in SETTINGS)]


def metrics() -> list[str]:
    """Each metric of a process with the names of its labels."""
    with EmbeddedCluster() as cluster, DriverProcess(Driver.of(MeasuredLamps()), settings_for(cluster)) as process:
        cluster.wait_slices(NAME)
        for measured in (process.metrics.call("prepare"), process.metrics.nri_event("CreateContainer")):
            with measured:
                pass
        page = process.metrics.text().decode()
    lines = [line for line in page.splitlines() if not line.startswith("#") and "_created{" not in line]
    return sorted({re.sub(r'="[^"]*"|(?<=}) .*', "", line) for line in lines})


def test_the_page_has_both_names_of_what_was_renamed() -> None:
    page = (Path(__file__).parents[3] / "docs/install.md").read_text()
    rows = [f"| `{old.partition('{')[0]}` | `{new.partition('{')[0]}` |" for old, new in RENAMED.items()]
    assert [row for row in rows if row not in page] == []


def test_every_name_is_as_it_was() -> None:
    saved = json.loads(SAMPLE.read_bytes())
    saved["metrics"] = [RENAMED.get(name, name) for name in saved["metrics"]]
    now = {"settings": settings(), "metrics": metrics(), "events": [*get_args(events.Reason)]}
    assert {kind: sorted({*names} - {*now[kind]}) for kind, names in saved.items()} == {kind: [] for kind in now}
