"""State files of earlier releases: every sample that was ever kept is read, and means what it meant.

A sample is never changed. A release that writes another format adds samples, and still reads these.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from dra_sdk import Quantity
from dra_sdk.node.health.unhealthy_store import DEFAULT_TAINT
from dra_sdk.node.health.unhealthy_store import FORMAT as HEALTH_FORMAT
from dra_sdk.node.health.unhealthy_store import decode as decode_health
from dra_sdk.node.prepare.checkpoint import FORMAT, ClaimPhase, decode, salvage

SAMPLES = Path(__file__).parent / "samples"
HEALTH = Path(__file__).parents[1] / "health/samples"
UID = "2d3c7a52-9a3e-4a2c-8a44-5f5d8d6f3b10"


def test_there_is_a_sample_of_every_format() -> None:
    assert {each.name for each in SAMPLES.iterdir()} == {
        f"format-{number}-{phase}.json" for number in range(1, FORMAT + 1) for phase in ("started", "completed")
    }
    assert {each.name for each in HEALTH.iterdir()} == {
        f"format-{number}.json" for number in range(1, HEALTH_FORMAT + 1)
    }


def test_a_claim_of_format_1_is_undone_with_what_it_recorded() -> None:
    found = decode((SAMPLES / "format-1-started.json").read_bytes(), "sample")
    assert (found.claim.namespace, found.claim.name, found.claim.uid) == ("team", "training", UID)
    assert (found.phase, found.boot_id, found.claim.pods) == (
        ClaimPhase.STARTED,
        "b6c6b2de-6f0f-4d9b-a7f5-0f4b8d2a1c33",
        ("9a1e",),
    )
    assert found.claim.journal == ({"was": "persistence off", "node": None},)
    assert [(each.request, each.pool, each.name) for each in found.claim.devices] == [
        ("gpus/first", "node-1", "gpu-0"),
        ("look", "node-1", "gpu-1"),
    ]


def test_a_claim_that_was_completed_with_format_1_is_answered_as_before() -> None:
    content = (SAMPLES / "format-1-completed.json").read_bytes()
    found = decode(content, "sample")
    first, second = found.claim.devices
    assert found.phase is ClaimPhase.COMPLETED
    assert (first.share_id, first.admin_access, second.share_id, second.admin_access) == ("7e1c", False, None, True)
    assert first.consumed_capacity == {"memory": Quantity("8Gi")}
    assert first.data == {"minor": 0, "modes": ["exclusive", None]}
    assert first.cdi_ids == (f"gpu.example.com/device=claim-{UID}_gpus.first_gpu-0_7e1c",)
    assert found.cdi_spec is not None
    assert [each["containerEdits"] for each in found.cdi_spec["devices"]] == [{"env": ["GPU=0"]}, {"env": ["LOOK=1"]}]
    assert [each["conditions"][0]["reason"] for each in found.statuses] == ["Set"]
    damaged = salvage(content[:-40])
    assert damaged is not None
    assert [each.name for each in damaged.claim.devices] == ["gpu-0", "gpu-1"]


def test_unhealthy_devices_of_format_1_keep_their_taints() -> None:
    found = decode_health((HEALTH / "format-1.json").read_bytes(), "sample")
    since = datetime(2026, 11, 20, 8, tzinfo=UTC)
    assert found == {
        ("node-1", "gpu-0"): {DEFAULT_TAINT: since},
        ("node-1", "gpu-1"): {"gpu.example.com/xid=79": since},
    }
