"""Records of devices: kept, locked, and void after a reboot."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from dra_sdk import RetriableError
from dra_sdk.hardware.polling import Clock
from dra_sdk.hardware.records import RecordError, Records, alone
from dra_sdk.testing.waiting import LONG


@dataclass
class Notes:
    """What a driver keeps of a device."""

    count: int = 0
    owners: dict[str, str] = field(default_factory=dict)


@pytest.fixture
def make_records(tmp_path):
    def make(boot_id="first", clock=None):
        return Records(tmp_path / "devices", Notes, boot_id, clock or Clock(interval=0.01))

    return make


def test_a_record_is_kept_and_an_empty_one_is_removed(make_records, tmp_path):
    records = make_records()
    with records.locked("a") as notes:
        notes.owners["claim"] = "someone"
        records.save("a", notes)
    assert records.devices() == ["a"]
    assert make_records().read("a") == Notes(owners={"claim": "someone"})
    with records.locked("a"):
        records.save("a", Notes())
    assert records.devices() == []
    assert records.read("a") == Notes()
    assert list(tmp_path.rglob("*.json")) == []


def test_records_of_an_earlier_boot_count_as_empty(make_records):
    records = make_records()
    with records.locked("a"):
        records.save("a", Notes(count=1))
    assert make_records("second").read("a") == Notes()


def test_fields_that_this_release_does_not_know_are_left_out(make_records, tmp_path):
    (tmp_path / "devices/a").mkdir(parents=True)
    (tmp_path / "devices/a/record.json").write_text('{"boot": "first", "count": 2, "later": true}')
    assert make_records().read("a") == Notes(count=2)


def test_only_one_thread_at_a_time_locks_a_device(make_records):
    records = make_records()

    def count():
        for _ in range(20):
            with records.locked("a") as notes:
                notes.count += 1
                records.save("a", notes)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert records.read("a").count == 80


def test_a_device_that_stays_locked_is_not_waited_for_beyond_the_call(make_records):
    with make_records().locked("a"):
        hurried = make_records(clock=Clock().within(0.05))
        with pytest.raises(RetriableError, match="another call still works on a"), hurried.locked("a"):
            pass


@pytest.mark.parametrize("content", ["[]", '{"boot": 1', "{}"])
def test_an_unreadable_record_is_an_error_and_stays(make_records, tmp_path, content):
    path = tmp_path / "devices/a/record.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    with pytest.raises(RecordError, match=r"record.json cannot be read: .*; restore or remove it"):
        make_records().read("a")
    assert path.read_text() == content


@pytest.mark.parametrize("content", ["", "\0" * 40])
def test_a_file_without_content_after_a_power_failure_counts_as_empty(make_records, tmp_path, content):
    path = tmp_path / "devices/a/record.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    assert make_records().read("a") == Notes()


def test_a_record_is_saved_without_a_lock_too(make_records):
    make_records().save("card0", Notes(3))
    assert make_records().read("card0") == Notes(3)


def test_only_one_holds_a_directory_and_the_next_one_waits_for_it(tmp_path):
    order, entered = [], threading.Event()

    def newer():
        entered.set()
        with alone(tmp_path, threading.Event()) as held:
            order.append(("newer", held))

    waiting = threading.Thread(target=newer)
    with alone(tmp_path, threading.Event()) as held:
        order.append(("older", held))
        waiting.start()
        assert entered.wait(LONG)
        order.append(("older ends", held))
    waiting.join(LONG)
    assert order == [("older", True), ("older ends", True), ("newer", True)]


def test_who_is_asked_to_stop_does_not_wait_for_a_directory(tmp_path):
    stop = threading.Event()
    stop.set()
    with alone(tmp_path, stop) as held:
        assert not held
