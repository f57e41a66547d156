"""What is remembered of each GPU."""

from __future__ import annotations

import threading

import pytest
from dra_driver_gpu.prepare.records import Record, RecordError, Records

from dra_sdk import RetriableError
from dra_sdk.testing import claim


def test_what_is_kept_and_forgotten(make_gpus):
    rig = make_gpus("L4")
    records = Records(rig.site)
    with records.locked("GPU-1") as record:
        record.instances["19-0"] = {"claims": ["a"]}
        record.uses["b/gpu-0"] = {"claim": "b", "device": "gpu-0", "policy": {}}
        records.save("GPU-1", record)
    assert records.known() == ["GPU-1"]
    assert records.read("GPU-1") == record
    with records.locked("GPU-1") as record:
        records.save("GPU-1", Record())
    assert records.known() == []
    assert records.read("GPU-1").empty


def test_a_reboot_makes_it_void(make_gpus):
    rig = make_gpus("L4")
    records = Records(rig.site)
    with records.locked("GPU-1"):
        records.save("GPU-1", Record(mig_mode=True))
    rig.node.reboot()
    assert Records(rig.site).read("GPU-1").empty


def test_one_at_a_time(make_gpus):
    records = Records(make_gpus("L4").site)

    def count():
        for _ in range(20):
            with records.locked("GPU-1") as record:
                record.compute_mode = (record.compute_mode or 0) + 1
                records.save("GPU-1", record)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert records.read("GPU-1").compute_mode == 80


@pytest.mark.parametrize("content", ["[]", '{"boot": 1', "{}"])
def test_one_that_cannot_be_read_is_named(make_gpus, content, caplog):
    rig = make_gpus("L4")
    path = rig.node.file("/s/gpus/GPU-1/record.json", content)
    with pytest.raises(RecordError, match=r"record.json cannot be read: .*; restore or remove it"):
        Records(rig.site).read("GPU-1")
    rig.driver.prepare(claim("gpu"))  # of another GPU
    assert "what is left on GPU GPU-1 cannot be told" in caplog.text
    assert path.read_text() == content


@pytest.mark.parametrize("content", ["", "\0" * 40])
def test_what_a_power_failure_leaves_of_a_file_counts_as_empty(make_gpus, content):
    rig = make_gpus("L4")
    rig.node.file("/s/gpus/GPU-1/record.json", content)
    assert Records(rig.site).read("GPU-1").empty


def test_a_gpu_that_stays_taken_is_not_waited_for_for_ever(make_gpus):
    rig = make_gpus("L4")
    with Records(rig.site).locked("GPU-1"):
        hurried = Records(rig.site.within(0.05))
        with pytest.raises(RetriableError, match="another call is still at work on GPU-1"), hurried.locked("GPU-1"):
            pass
