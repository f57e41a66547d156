"""The picture of `dra-sdk simulate --picture`: nodes, devices and claims, with what drivers draw of their nodes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final

from dra_sdk.cli.driver_input import opened_drivers
from dra_sdk.cli.hook_calls import top
from dra_sdk.cli.output import print_notes, write_file
from dra_sdk.errors import DraError
from dra_sdk.model import JSON
from dra_sdk.model.claim import HeldClaim, HeldDevice
from dra_sdk.model.driver import Node
from dra_sdk.model.quantity import Quantity
from dra_sdk.tools.scheduling.cluster import PodPlacement, SchedulingOutcome, Snapshot, display_name
from dra_sdk.tools.scheduling.explain import Explainer, Explanation
from dra_sdk.tools.scheduling.picture import NotPlaced, build_scene, render_page

MAX_EXPLANATIONS: Final = 20
"""The most explanations in a picture; further pods and claims have the scheduler's reason."""


def write_picture(
    outcome: SchedulingOutcome, path: Path, pictures: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> None:
    """Draw the outcome as one HTML page; SettingsError if the file cannot be written.

    pictures: the lines that drivers draw of a node, by the node's name.
    """
    content = render_page(build_scene(outcome.snapshot, tuple(_waiting(outcome)), pictures))
    write_file(path, content)


def driver_pictures(arguments: argparse.Namespace, outcome: SchedulingOutcome) -> dict[str, list[str]]:
    """Return what the drivers of --driver draw of their nodes with the planned claims (`dra_top`), by the node's name.

    A driver that cannot draw claims which are only planned is left out, with a note on stderr.
    """
    pictures: dict[str, list[str]] = {}
    for source in opened_drivers(arguments):
        driver = source.driver
        for node in source.nodes if driver.implements("dra_top") else ():
            try:
                lines = top(driver, Node(node, source.root), planned_claims(outcome.snapshot, driver.info.name, node))
            except DraError as error:
                print_notes([f"the picture has none of driver {source.name}: {error}"])
            else:
                pictures.setdefault(node, []).extend([*([""] if node in pictures else []), *lines])
    return pictures


def planned_claims(snapshot: Snapshot, driver: str, node: str) -> list[HeldClaim]:
    """Return the claims with devices of the driver's own pools of a node; not prepared, so no device has `data`."""
    own = (published["spec"] for published in snapshot.slices if published["spec"]["driver"] == driver)
    pools = {spec["pool"]["name"] for spec in own if spec.get("nodeName") == node}
    planned = []
    for claim in snapshot.claims:
        results = ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ()
        devices = [_planned(result) for result in results if result["driver"] == driver and result["pool"] in pools]
        if devices:
            about = claim["metadata"]
            planned.append(HeldClaim(about.get("namespace", "default"), about["name"], about.get("uid", ""), devices))
    return planned


def _planned(result: JSON) -> HeldDevice:
    consumed = {key: Quantity(value) for key, value in (result.get("consumedCapacity") or {}).items()}
    return HeldDevice(
        result["request"],
        result["pool"],
        result["device"],
        share_id=result.get("shareID"),
        admin_access=bool(result.get("adminAccess")),
        consumed_capacity=consumed,
    )


def _waiting(outcome: SchedulingOutcome) -> Iterator[NotPlaced]:
    """Yield what is not placed, with the reasons."""
    explainer = Explainer(outcome)
    for number, pod in enumerate(outcome.unplaced):
        reason = _pod_explanation(explainer, pod) if number < MAX_EXPLANATIONS else pod.reason
        yield NotPlaced(f"pod {display_name(pod.pod)}", reason)
    for number, claim in enumerate(outcome.unallocated, len(outcome.unplaced)):
        explained = number < MAX_EXPLANATIONS
        reason = _explanation(explainer.claim(claim.claim)) if explained else claim.reason
        yield NotPlaced(f"claim {display_name(claim.claim)}", reason)


def _pod_explanation(explainer: Explainer, pod: PodPlacement) -> str:
    unsatisfiable = [claim for claim in explainer.pod(pod.pod).claims if not claim.satisfiable]
    return "\n".join(map(_explanation, unsatisfiable)) or pod.reason


def _explanation(explanation: Explanation) -> str:
    """Return the reason without the claim's name, so that equal ones are grouped, and the smallest helpful change."""
    reason = explanation.summary.partition(" cannot be allocated")[2].lstrip(": ") or explanation.summary
    return f"{reason}\nWould help: {explanation.changes[0].text}" if explanation.changes else reason
