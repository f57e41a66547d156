"""A driver's settings: from the environment and a file, with every mistake told at once, and their documentation."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, ValidationError, model_validator

from dra_sdk import DraError, DriverSettings, SettingsError
from dra_sdk.model.settings import SettingsFile
from dra_sdk.settings import CommaSeparated, HostPath, KubeletPath, Parsed, Seconds, split_words

FILE = Path("/etc/lamp.yaml")


def parse_colour(text: str) -> int:
    if not text.startswith("#"):
        raise DraError("must be like #ff0000")
    return int(text[1:], 16)


class LampSettings(DriverSettings, prefix="LAMP_"):
    root: HostPath = Field(default="/", description="where it hangs")
    spare_root: HostPath | None = Field(default=None, description="where another hangs")
    lit: bool = Field(default=False, description="whether it is on")
    mode: Literal["steady", "blink"] = Field(default="steady", description="how it shines")
    delay: Annotated[float, Seconds(9, "nobody waits longer")] = Field(default=1.0, description="until it is on")
    level: int = Field(default=3, ge=1, le=8, description="how bright it is")
    rooms: CommaSeparated = Field(default=("hall", "attic"), description="where it may be; a|b is a name")
    numbers: Annotated[frozenset[int], Parsed(split_words, "numbers")] = Field(default=frozenset())
    rgb: Annotated[int, Parsed(parse_colour, "colour")] = Field(default=0)


def read(file: dict[str, str] | None = None, **environment: str) -> LampSettings:
    return LampSettings.read(environment, None if file is None else SettingsFile(FILE, file))


def refusal(file: dict[str, str] | None = None, **environment: str) -> str:
    with pytest.raises(SettingsError) as caught:
        read(file, **environment)
    return str(caught.value)


def test_without_variables_all_settings_have_defaults() -> None:
    assert read() == read(PATH="/bin", LAMP_LIT="", LAMPS="3") == LampSettings()


def test_every_type_is_read_from_text() -> None:
    settings = read(
        LAMP_ROOT="/a/b/",
        LAMP_SPARE_ROOT="/",
        LAMP_LIT="Yes",
        LAMP_MODE="blink",
        LAMP_DELAY="2.5",
        LAMP_LEVEL="8",
        LAMP_ROOMS=" hall, ,cellar,",
        LAMP_NUMBERS="3,1",
        LAMP_RGB="#00ff00",
    )
    assert (settings.root, settings.spare_root, settings.lit, settings.mode) == ("/a/b", "/", True, "blink")
    assert (settings.delay, settings.level, settings.rooms) == (2.5, 8, ("hall", "cellar"))
    assert (settings.numbers, settings.rgb) == ({1, 3}, 0xFF00)


@pytest.mark.parametrize(("text", "lit"), [("1", True), ("ON", True), ("true", True), ("no", False), ("Off", False)])
def test_a_switch_has_many_words(text: str, lit: bool) -> None:
    assert read(LAMP_LIT=text).lit is lit


def test_the_environment_of_the_process_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [variable for variable in os.environ if variable.startswith("LAMP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LAMP_LEVEL", "7")
    assert LampSettings.read().level == 7


def test_the_environment_wins_over_the_file_and_it_over_the_default() -> None:
    file = {"spareRoot": "/file", "level": "5"}
    settings = read(file, LAMP_SPARE_ROOT="/environment", LAMP_LEVEL="")
    assert (settings.spare_root, settings.level, settings.mode) == ("/environment", 5, "steady")


@pytest.mark.parametrize(
    ("field", "text", "rule"),
    [
        ("root", "a/b", "must be an absolute path on the host"),
        ("spareRoot", "a/b", "must be an absolute path on the host"),
        ("lit", "maybe", "must be true or false"),
        ("mode", "dark", "must be 'steady' or 'blink'"),
        ("delay", "10", "must be above 0 and at most 9 seconds: nobody waits longer"),
        ("delay", "0", "must be above 0 and at most 9 seconds: nobody waits longer"),
        ("delay", "nan", "must be a finite number"),
        ("delay", "soon", "must be a number"),
        ("level", "9", "must be less than or equal to 8"),
        ("level", "1.5", "must be a whole number"),
        ("numbers", "1,x", "'x' must be a whole number"),
        ("rgb", "red", "must be like #ff0000"),
    ],
)
def test_an_unusable_value_is_an_error_with_its_place_and_the_limit(field: str, text: str, rule: str) -> None:
    variable = f"LAMP_{'SPARE_ROOT' if field == 'spareRoot' else field.upper()}"
    assert refusal(**{variable: text}) == f"environment variable {variable}={text!r}: {rule}"
    assert refusal({field: text}) == f"setting driver.{field} of settings file /etc/lamp.yaml={text!r}: {rule}"


def test_all_mistakes_are_told_at_once() -> None:
    text = refusal({"mode": "dark", "levle": "3"}, LAMP_LIT="maybe", LAMP_DELAI="3", LAMP_LEVEL="0")
    assert text == "; ".join(
        [
            "unknown environment variable LAMP_DELAI; did you mean LAMP_DELAY?",
            "settings file /etc/lamp.yaml: unknown setting driver.levle; did you mean level?",
            "environment variable LAMP_LIT='maybe': must be true or false",
            "setting driver.mode of settings file /etc/lamp.yaml='dark': must be 'steady' or 'blink'",
            "environment variable LAMP_LEVEL='0': must be greater than or equal to 1",
        ]
    )


def test_a_name_that_is_like_no_other_is_told_with_those_that_exist() -> None:
    assert refusal(LAMP_QQQ="1").startswith("unknown environment variable LAMP_QQQ; known are LAMP_ROOT, LAMP_SPARE")
    assert refusal({"qqq": "1"}).endswith(
        "unknown setting driver.qqq; known are root, spareRoot, lit, mode, delay, level, rooms, numbers, rgb"
    )
    assert "unknown setting driver.spare_root; did you mean spareRoot?" in refusal({"spare_root": "/"})


@pytest.mark.parametrize(
    "name",
    [
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_METRICS",
        "PORT",
        "PORT_8080_TCP",
        "PORT_8080_TCP_PROTO",
        "PORT_8080_TCP_PORT",
        "PORT_8080_TCP_ADDR",
        "PORT_53_UDP",
    ],
)
def test_variables_of_a_service_named_like_the_driver_are_no_settings(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    both = {f"LAMP_{name}": "10.0.0.1", f"LAMP_NVIDIA_{name}": "10.0.0.1"}
    assert read(**both, LAMP_LIT="yes") == read(LAMP_LIT="yes")
    rule = "is no setting: Kubernetes sets such variables for Services"
    expected = [f"environment variable {variable} {rule}" for variable in sorted(both)]
    assert [record.getMessage() for record in caplog.records] == expected


@pytest.mark.parametrize("name", ["SERVICE", "SERVICE_HOSTS", "PORTS", "PORT_TCP", "PORT_8080_TCP_MORE"])
def test_variables_that_no_service_has_are_unknown(name: str) -> None:
    assert f"unknown environment variable LAMP_NVIDIA_{name}; " in refusal(**{f"LAMP_NVIDIA_{name}": "10.0.0.1"})


def test_a_required_setting_that_is_missing_is_told_with_both_places() -> None:
    class WiredSettings(DriverSettings, prefix="WIRED_"):
        power_url: str

    with pytest.raises(
        SettingsError, match=r"^environment variable WIRED_POWER_URL, or driver\.powerUrl in a file, is"
    ):
        WiredSettings.read({})
    assert WiredSettings.read({"WIRED_POWER_URL": "x"}).power_url == "x"
    assert WiredSettings.documentation()[0].default is None
    assert WiredSettings.markdown().endswith("| `WIRED_POWER_URL` | `powerUrl` | text | required |  |\n")


def test_a_default_that_the_field_refuses_is_blamed_on_the_class() -> None:
    class WrongSettings(DriverSettings, prefix="WRONG_"):
        level: int = Field(default=9, le=8)

    with pytest.raises(SettingsError, match=r"^default of WrongSettings\.level: must be less than .* 8 \(is 9\)$"):
        WrongSettings.read({})
    assert WrongSettings.read({"WRONG_LEVEL": "8"}).level == 8


def test_a_check_of_several_settings_is_told_with_the_prefix() -> None:
    class PairSettings(DriverSettings, prefix="PAIR_"):
        low: int = 1
        high: int = 2

        @model_validator(mode="after")
        def _ordered(self) -> PairSettings:
            if self.low > self.high:
                raise ValueError("low must not be above high")
            return self

    with pytest.raises(SettingsError, match=r"^settings PAIR_…: low must not be above high$"):
        PairSettings.read({"PAIR_LOW": "3"})


def test_settings_in_code_are_checked_too_and_cannot_be_changed() -> None:
    made: Any = LampSettings(level=4, rooms=("hall",))
    assert (made.level, made.rooms) == (4, ("hall",))
    for wrong in ({"level": 9}, {"levle": 4}, {"delay": float("inf")}):
        with pytest.raises(ValidationError):
            LampSettings(**wrong)
    with pytest.raises(ValidationError, match="frozen"):
        made.level = 5


@pytest.mark.parametrize("prefix", ["lamp_", "LAMP", "_", "LAMP__", "1_", "DRA_SDK_", "DRA_SDK_LAMP_"])
def test_a_prefix_has_a_form(prefix: str) -> None:
    with pytest.raises(TypeError, match=f"Wrong: prefix '{prefix}' must be words in capitals"):
        type("Wrong", (DriverSettings,), {}, prefix=prefix)


def test_a_class_needs_a_prefix_and_a_subclass_inherits_it() -> None:
    with pytest.raises(TypeError, match=r'class Bare\(DriverSettings, prefix="DRA_LAMP_"\)'):
        type("Bare", (DriverSettings,), {})

    class MoreSettings(LampSettings):
        more: str = "x"

    assert MoreSettings.read({"LAMP_MORE": "y", "LAMP_LEVEL": "1"}) == MoreSettings(more="y", level=1)


def test_the_table_for_a_readme() -> None:
    assert (
        LampSettings.markdown()
        == """\
| variable | in a file | value | default | meaning |
|---|---|---|---|---|
| `LAMP_ROOT` | `root` | absolute path | `/` | where it hangs |
| `LAMP_SPARE_ROOT` | `spareRoot` | absolute path |  | where another hangs |
| `LAMP_LIT` | `lit` | true or false | `false` | whether it is on |
| `LAMP_MODE` | `mode` | steady or blink | `steady` | how it shines |
| `LAMP_DELAY` | `delay` | seconds, at most 9 | `1` | until it is on |
| `LAMP_LEVEL` | `level` | whole number, at least 1, at most 8 | `3` | how bright it is |
| `LAMP_ROOMS` | `rooms` | words, separated by commas | `hall,attic` | where it may be; a\\|b is a name |
| `LAMP_NUMBERS` | `numbers` | numbers |  |  |
| `LAMP_RGB` | `rgb` | colour | `0` |  |
"""
    )


def test_the_default_of_a_set_has_a_stable_order() -> None:
    class SetSettings(DriverSettings, prefix="SET_"):
        words: Annotated[frozenset[str], Parsed(split_words)] = frozenset({"c", "a", "b"})
        either: int | Literal["all"] = Field(default="all", ge=0)

    assert [(setting.accepts, setting.default) for setting in SetSettings.documentation()] == [
        ("text", "a,b,c"),
        ("whole number, at least 0 or all", "all"),
    ]


class OwnSettings(DriverSettings, prefix="OWN_"):
    state: KubeletPath = Field(default="plugins/own.example.com")
    root: KubeletPath = Field(default=".")


def test_a_path_without_a_slash_in_front_is_below_the_directory_of_the_kubelet() -> None:
    usual = OwnSettings()
    assert (usual.state, usual.root) == ("/var/lib/kubelet/plugins/own.example.com", "/var/lib/kubelet")
    elsewhere = OwnSettings.read({}, kubelet_dir=Path("/data/kubelet/"))
    assert (elsewhere.state, elsewhere.root) == ("/data/kubelet/plugins/own.example.com", "/data/kubelet")
    given = OwnSettings.read({"OWN_STATE": "/srv/own/", "OWN_ROOT": "own"}, kubelet_dir="/data/kubelet")
    assert (given.state, given.root) == ("/srv/own", "/data/kubelet/own")
    assert OwnSettings.documentation()[0].default == "plugins/own.example.com"
    assert OwnSettings.documentation()[0].accepts == "absolute path, or one below the kubelet's directory"
