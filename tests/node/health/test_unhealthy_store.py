from __future__ import annotations

from datetime import UTC, datetime

import pytest

from dra_sdk.errors import StateError
from dra_sdk.node.files import Files
from dra_sdk.node.health.unhealthy_store import UnhealthyStore, decode, encode

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
UNHEALTHY = {
    ("node-a", "lamp-1"): {"unhealthy": NOON},
    ("rack/7", "lamp-0"): {"fuse=3": NOON, "fuse=4": NOON.replace(hour=13)},
}


@pytest.fixture
def file(tmp_path):
    return UnhealthyStore(tmp_path / "unhealthy.json", Files())


def test_what_is_saved_is_loaded_by_the_next_process(file, tmp_path):
    file.save(UNHEALTHY)
    assert UnhealthyStore(tmp_path / "unhealthy.json", Files()).load() == UNHEALTHY
    assert [path.name for path in tmp_path.iterdir()] == ["unhealthy.json"]
    file.save({})
    assert file.load() == {}


def test_the_default_taint_is_written_as_earlier_releases_wrote_it():
    entry = b'{"pool": "node-a", "device": "lamp-1", "since": "2026-01-31T12:00:00Z"}'
    found = {("node-a", "lamp-1"): {"unhealthy": NOON}}
    assert decode(b'{"version": 1, "unhealthy": [%s]}' % entry, "f") == found
    assert b"taint" not in encode(found)


def test_without_a_file_nothing_is_unhealthy(file, caplog):
    assert file.load() == {}
    assert caplog.text == ""


def test_the_content_does_not_depend_on_the_order():
    assert encode(UNHEALTHY) == encode(dict(reversed(UNHEALTHY.items())))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"version": 1}',
        b'{"version": 1, "unhealthy": 7}',
        b'{"version": 1, "unhealthy": [{"pool": "p", "device": "d"}]}',
        b'{"version": 1, "unhealthy": [{"pool": "p", "device": "d", "since": "noon"}]}',
        b"[" * 100_000,
    ],
)
def test_damage_is_logged_by_name_and_costs_the_taints_only(file, tmp_path, caplog, content):
    with pytest.raises(StateError, match=r"unhealthy\.json"):
        decode(content, "unhealthy.json")
    path = tmp_path / "unhealthy.json"
    path.write_bytes(content)
    assert file.load() == {}
    assert str(path) in caplog.text
    assert path.read_bytes() == content


def test_a_newer_format_is_named():
    with pytest.raises(StateError, match="has format 2, this release reads 1"):
        decode(b'{"version": 2, "unhealthy": []}', "f")


def test_a_write_that_fails_is_logged(tmp_path, caplog):
    UnhealthyStore(tmp_path / "missing" / "unhealthy.json", Files()).save(UNHEALTHY)
    assert "cannot write" in caplog.text
    assert "missing/unhealthy.json" in caplog.text
