"""Versions as hardware writes them and as the API accepts them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk import Device, Version
from dra_sdk.wire.validation.names import semantic_version


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("580.95.05", "580.95.5"),
        ("8.0", "8.0.0"),
        ("470", "470.0.0"),
        ("1.2.3.4", "1.2.3"),
        ("6.12.12.60401", "6.12.12"),
        ("580.00.00", "580.0.0"),
        ("535.104.05-rc1", "535.104.5"),
        ("580.x.05", "580.0.5"),
        ("v6.1", "6.1.0"),
        ("", "0.0.0"),
        ("N/A", "0.0.0"),
        ("1.²", "1.0.0"),
        ("9" * 5000, f"{'9' * 18}.0.0"),
    ],
)
def test_versions_have_three_parts_without_leading_zeros(text: str, wanted: str) -> None:
    version = Version.lenient(text)
    assert (version, type(version)) == (wanted, Version)


@given(st.text(alphabet="0123456789.v-+x ²", max_size=40) | st.text())
def test_any_text_becomes_a_version_that_the_api_server_accepts(text: str) -> None:
    version = Version.lenient(text)
    assert len(version) <= 64
    assert list(semantic_version(version, "version")) == []
    assert all(int(part) < 2**63 for part in version.split("."))
    assert Version.lenient(version) == version


def test_the_drivers_own_object_is_no_part_of_what_a_device_is() -> None:
    assert Device("a", hardware=object()) == Device("a")
    assert "hardware" not in repr(Device("a", hardware=object()))
