"""The record of a GPU, and the steps in it of claims that hold nothing."""

from __future__ import annotations

from dra_driver_gpu.gpu_record import MIG_STEP, USE_STEP, VFIO_STEP, GpuRecord

from dra_sdk.testing import claim


def full() -> GpuRecord:
    return GpuRecord(
        mig_mode=True,
        instances={"19-4": {"claims": ["a", "b"]}, "9-0": {"claims": ["a"]}},
        uses={"a/gpu-0": {"claim": "a", "device": "gpu-0", "policy": {}}},
        compute_mode=0,
        time_slice="set",
    )


def test_a_record_knows_its_instances():
    assert full().has_instance(19, 4)
    assert not full().has_instance(19, 5)


def test_a_claim_on_a_lost_gpu_is_removed_and_mig_mode_stays():
    record = full()
    record.forget("a")
    assert record == GpuRecord(mig_mode=True, instances={"19-4": {"claims": ["b"]}})


def test_a_record_lists_the_steps_that_undo_every_claim():
    entry = {"step": VFIO_STEP, "gpu": "0000:10:00.0"}
    bound = GpuRecord(vfio={"claim": "c", "entry": entry, "name": {}})
    assert list(bound.steps("0000:10:00.0")) == [("c", entry)]
    assert list(full().steps("GPU-1")) == [
        ("a", {"step": USE_STEP, "gpu": "GPU-1", "device": "gpu-0"}),
        ("a", {"step": MIG_STEP, "gpu": "GPU-1", "profile": 19, "start": 4}),
        ("b", {"step": MIG_STEP, "gpu": "GPU-1", "profile": 19, "start": 4}),
        ("a", {"step": MIG_STEP, "gpu": "GPU-1", "profile": 9, "start": 0}),
    ]


def test_an_unreadable_record_does_not_affect_claims_on_other_gpus(make_gpus, caplog):
    harness = make_gpus("L4")
    path = harness.node.file("/s/gpus/GPU-1/record.json", "[]")
    harness.driver.prepare(claim("gpu"))
    assert "what claims changed on GPU GPU-1 is not known" in caplog.text
    assert path.read_text() == "[]"
