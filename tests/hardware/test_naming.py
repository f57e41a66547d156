"""Names of devices: valid, stable and different, for whatever ids there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk.hardware.naming import attribute_text, device_name, natural_order
from dra_sdk.wire.validation.names import dns_label

UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"


@pytest.mark.parametrize(
    ("id_", "name"),
    [
        ("/dev/ttyUSB0", "uart-dev-ttyusb0-"),
        (f"GPU-{UUID}::3", f"uart-gpu-{UUID}-3-"),
        ("0000:3b:00.0", "uart-0000-3b-00-0-"),
        ("Ä", "uart-"),
    ],
)
def test_a_name_shows_kind_and_id_before_the_hash(id_: str, name: str) -> None:
    shown = device_name("uart", id_)
    assert shown.startswith(name)
    assert len(shown) == len(name) + 10


def test_names_stay_the_same_in_every_release() -> None:
    assert device_name("uart", "/dev/ttyUSB0") == "uart-dev-ttyusb0-70abad1e6b"
    assert device_name("thing", "gpu0", scope="vendor.com/thing") == "thing-gpu0-ae4709126b"


@given(st.text(max_size=80), st.text(max_size=300))
def test_a_name_is_a_dns_label_for_any_kind_and_id(kind: str, id_: str) -> None:
    assert list(dns_label(device_name(kind, id_), "name")) == []


def test_ids_that_look_alike_have_different_names() -> None:
    alike = ["a/b", "a-b", "A-b", "a b", "x" * 200, "y" + "x" * 199]
    assert len({device_name("kind", id_, scope) for id_ in alike for scope in ("", "other")}) == 2 * len(alike)


@given(st.text(max_size=200))
def test_any_text_fits_into_an_attribute_and_short_ones_stay(text: str) -> None:
    value = attribute_text(text)
    assert len(value.encode()) <= 64
    assert (value == text) == (len(text.encode()) <= 64)


def test_long_texts_with_the_same_beginning_differ() -> None:
    assert attribute_text("ä" * 200) != attribute_text("ä" * 199)


def test_numbers_are_compared_as_numbers() -> None:
    assert sorted(["gpu10", "gpu9", "b", "10", "9", "gpu1-2", "gpu1"], key=natural_order) == [
        "9", "10", "b", "gpu1", "gpu1-2", "gpu9", "gpu10",
    ]  # fmt: skip
