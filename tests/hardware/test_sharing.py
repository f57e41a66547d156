"""The policy as a setting; what it does to devices is tested by the GPU driver."""

from __future__ import annotations

import pytest

from dra_sdk import DriverSettings, SettingsError
from dra_sdk.hardware.sharing import Sharing


class LampSettings(DriverSettings, prefix="LAMP_"):
    sharing: Sharing = Sharing()


@pytest.mark.parametrize(
    ("text", "sharing"),
    [
        ("disabled", Sharing()),
        ("memory", Sharing("memory")),
        ("unlimited", Sharing("unlimited")),
        ("4", Sharing("shares", 4)),
    ],
)
def test_a_setting_of_this_type_is_read_from_text_and_written_as_text(text: str, sharing: Sharing) -> None:
    assert LampSettings.read({"LAMP_SHARING": text}).sharing == LampSettings(sharing=sharing).sharing == sharing
    assert str(sharing) == text


def test_an_unknown_policy_is_an_error_with_those_that_exist() -> None:
    with pytest.raises(SettingsError, match=r"LAMP_SHARING='1': .*must be disabled, memory, unlimited or a number of"):
        LampSettings.read({"LAMP_SHARING": "1"})


def test_the_documentation_names_the_policies() -> None:
    (row,) = LampSettings.documentation()
    assert (row.accepts, row.default) == ("disabled, memory, unlimited or a number of claims", "disabled")
