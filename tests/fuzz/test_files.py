"""Any file is read, or refused with the error class that its reader promises."""

from __future__ import annotations

import hashlib
import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from dra_sdk.errors import DraError, InvalidObjectError, SettingsError, StateError
from dra_sdk.model.claim import NO_DEADLINE
from dra_sdk.node.health import unhealthy_store
from dra_sdk.node.metadata.reading import read_metadata
from dra_sdk.node.overlay import OverlayError, load
from dra_sdk.node.prepare.checkpoint import FORMAT, decode, encode, json_copy, salvage
from dra_sdk.node.runtime.settings import read_settings
from dra_sdk.wire.cdi.reading import read_spec
from dra_sdk.wire.documents import read_documents
from tests.fuzz import documents
from tests.fuzz.strategies import damaged, files, fuzz, noisy, refused, values

SOURCE = "the-file"


def is_refused(read: Callable[[], object], kind: type[DraError]) -> bool:
    """Whether `read` raises an error. It must name the source."""
    said = refused(read, kind)
    assert SOURCE in said or not said
    return bool(said)


def signed(body: bytes) -> bytes:
    header = {"version": FORMAT, "sha256": hashlib.sha256(body).hexdigest()}
    return json.dumps(header).encode() + b"\n" + body + b"\n"


GOOD_STATE = signed(json.dumps(documents.STATE).encode())


def read_state(content: bytes) -> None:
    """And what was read can be used, and written again, which leaves out empty fields."""
    state = decode(content, SOURCE)
    assert state.held("boot-2", NO_DEADLINE).uid == state.claim.uid
    _, _, body = encode(state).partition(b"\n")
    assert encode(decode(encode(state), SOURCE)).endswith(body)


def test_good_files_are_read() -> None:
    read_state(GOOD_STATE)
    for good, read in READERS.values():
        assert read(json.dumps(good).encode())


@fuzz(350)
@given(noisy(GOOD_STATE))
def test_state_files(content: bytes) -> None:
    assert is_refused(lambda: read_state(content), StateError) or decode(content, SOURCE).claim.uid == documents.UID


@fuzz(500)
@given(damaged(documents.STATE))
def test_a_state_file_with_a_valid_checksum_is_read_or_refused(document: Any) -> None:
    is_refused(lambda: read_state(signed(json.dumps(document).encode())), StateError)


@fuzz(250)
@given(files(documents.STATE))
def test_any_state_file_is_read_or_refused(content: bytes) -> None:
    is_refused(lambda: read_state(content), StateError)
    is_refused(lambda: read_state(signed(content)), StateError)


READERS: dict[str, tuple[Any, Callable[[bytes], Any]]] = {
    "CDI spec": (documents.CDI, lambda content: read_spec(content, SOURCE)),
    "metadata": (documents.METADATA, lambda content: read_metadata(content, SOURCE)),
    "documents": (documents.SLICE, lambda content: read_documents(content, SOURCE)),
    "unhealthy devices": (documents.UNHEALTHY, lambda content: unhealthy_store.decode(content, SOURCE)),
}
ERRORS = {"unhealthy devices": StateError}


@pytest.mark.parametrize("kind", READERS)
def test_any_other_file_is_read_or_refused(kind: str) -> None:
    good, read = READERS[kind]
    count = 0

    @fuzz(350)
    @given(files(good))
    def run(content: bytes) -> None:
        nonlocal count
        count += is_refused(lambda: read(content), ERRORS.get(kind, InvalidObjectError))

    run()
    assert count > 30, "most of it was wrong"


def test_metadata_that_was_read_can_be_used() -> None:
    @fuzz(150)
    @given(damaged(documents.METADATA))
    def run(document: Any) -> None:
        if is_refused(lambda: read_metadata(json.dumps(document), SOURCE), InvalidObjectError):
            return
        assert isinstance(read_metadata(json.dumps(document), SOURCE).metadata.uid, str)

    run()


def test_any_settings_file_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / SOURCE

    @fuzz(200)
    @given(files(documents.SETTINGS))
    def run(content: bytes) -> None:
        path.write_bytes(content)
        is_refused(lambda: read_settings(Namespace(config=path, node_name="n"), {}), SettingsError)

    run()


def test_any_overlay_file_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / SOURCE
    path.write_text(json.dumps(documents.OVERLAY))
    load(path)

    @fuzz(250)
    @given(files(documents.OVERLAY))
    def run(content: bytes) -> None:
        path.write_bytes(content)
        is_refused(lambda: load(path), OverlayError)

    run()


@fuzz(350)
@given(noisy(encode(decode(GOOD_STATE, SOURCE))))
def test_what_a_damaged_state_file_still_tells_is_true(content: bytes) -> None:
    """Whatever can be saved of it is what was written, because the devices are held by it."""
    whole = decode(GOOD_STATE, SOURCE)
    if (found := salvage(content)) is not None and content.splitlines()[0] == encode(whole).splitlines()[0]:
        assert found.ref == whole.ref
        assert [(each.pool, each.name, each.share_id) for each in found.claim.devices] == [
            (each.pool, each.name, each.share_id) for each in whole.claim.devices
        ]


@fuzz(350)
@given(values)
def test_json_is_copied_as_it_will_be_read(value: Any) -> None:
    kept: list[Any] = []
    if not refused(lambda: kept.append(json_copy(value)), ValueError):
        assert json_copy(kept[0]) == kept[0]
