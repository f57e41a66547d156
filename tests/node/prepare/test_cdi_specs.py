"""CDI specs of claims: their names, their isolation, and the directory they lie in."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dra_sdk import ContainerEdits, DeviceNode, PreparedDevice
from dra_sdk.errors import ClaimError, HookError, InvalidObjectError, SettingsError
from dra_sdk.node.files import END, PREFIX, Files, claim_lock
from dra_sdk.node.locks import NamedLocks
from dra_sdk.node.prepare.cdi_specs import CdiSpecs, build_spec, name_devices, spec_path
from dra_sdk.wire.cdi.reading import check_spec

KIND = "example.com/lamp"
DRIVER = "lamps.example.com"
NO_CLAIM = frozenset[str]().__contains__
EDITS = ContainerEdits(env={"LAMP": "1"})


def device(
    name: str = "lamp-0",
    request: str = "r",
    edits: ContainerEdits = EDITS,
    cdi_name: str | None = None,
    pool: str = "p",
    share_id: str | None = None,
) -> PreparedDevice:
    return PreparedDevice(request, pool, name, share_id, edits, {}, cdi_name)


def test_names_hold_claim_request_device_and_share() -> None:
    devices = [device(), device("lamp-1", "r/big"), device(share_id="5-6")]
    assert name_devices("u-1", devices) == ["claim-u-1_r_lamp-0", "claim-u-1_r.big_lamp-1", "claim-u-1_r_lamp-0_5-6"]


def test_a_device_without_edits_needs_no_name() -> None:
    nothing = ContainerEdits()
    assert name_devices("u-1", [device(edits=nothing), device(edits=nothing, cdi_name="x")]) == ["", ""]


def test_the_same_device_name_in_two_pools_gets_two_names() -> None:
    names = name_devices("u-1", [device(), device(pool="q"), device(pool="s")])
    assert len(set(names)) == 3


def test_any_uid_gives_a_name_that_cdi_accepts() -> None:
    for uid in ("a/b", "..", "x" * 253, "ä ö", ""):
        (name,) = name_devices(uid, [device()])
        spec = build_spec(KIND, [name], [device()])
        assert check_spec(spec)["devices"][0]["name"] == name


def test_a_spec_has_one_device_for_each_that_edits_something() -> None:
    other = ContainerEdits(env={"B": "2"})
    devices = [device(), device("lamp-1", edits=ContainerEdits()), device("lamp-2", edits=other)]
    spec = build_spec(KIND, name_devices("u-1", devices), devices)
    assert spec
    assert spec["kind"] == KIND
    assert [(each["name"], each["containerEdits"]["env"]) for each in spec["devices"]] == [
        ("claim-u-1_r_lamp-0", ["LAMP=1"]),
        ("claim-u-1_r_lamp-2", ["B=2"]),
    ]


def test_nothing_to_edit_makes_no_spec() -> None:
    assert build_spec(KIND, [""], [device(edits=ContainerEdits())]) is None


def test_devices_may_share_a_name_with_equal_edits_only() -> None:
    same = [device(cdi_name="all"), device("lamp-1", cdi_name="all")]
    spec = build_spec(KIND, name_devices("u-1", same), same)
    assert spec
    assert [each["name"] for each in spec["devices"]] == ["all"]
    other = [device(cdi_name="all"), device("lamp-1", cdi_name="all", edits=ContainerEdits(env={"B": "2"}))]
    with pytest.raises(HookError, match="two devices with the CDI name 'all' with different edits"):
        build_spec(KIND, name_devices("u-1", other), other)


@pytest.mark.parametrize(
    ("edits", "field"),
    [
        (ContainerEdits(env={"A=B": "1"}), "env"),
        (ContainerEdits(device_nodes=[DeviceNode("")]), "deviceNodes[0].path"),
        (ContainerEdits(device_nodes=["/dev/x"]), "deviceNodes[0]"),  # type: ignore[list-item]
        (ContainerEdits(device_nodes=[{"path": "/dev/x"}]), "deviceNodes[0]"),  # type: ignore[list-item]
        (ContainerEdits(device_nodes=[DeviceNode("/dev/x", [])]), "deviceNodes[0].hostPath"),  # type: ignore[arg-type]
        (ContainerEdits(env=["A=1"]), "env"),  # type: ignore[arg-type]
        (ContainerEdits(mounts=""), "mounts"),  # type: ignore[arg-type]
    ],
)
@pytest.mark.parametrize("cdi_name", [None, "mine"])
def test_edits_that_cannot_be_used_are_the_hooks_error(edits: ContainerEdits, field: str, cdi_name: str | None) -> None:
    devices = [device("lamp-1"), device(edits=edits, cdi_name=cdi_name)]
    with pytest.raises(HookError) as caught:
        build_spec(KIND, name_devices("u-1", devices), devices)
    assert f": device p/lamp-0: {field}: " in str(caught.value)


@pytest.mark.parametrize("cdi_name", ["", "a/b", "a b", "-a", "a-", "a=b", "a\n", "\u00e4", 5, ["a"]])
def test_a_cdi_name_that_cdi_refuses_is_refused_with_its_device(cdi_name: str) -> None:
    with pytest.raises(
        HookError, match=r"cdi_name of device p/lamp-0: device name .* must start and end with a letter"
    ):
        name_devices("u-1", [device(cdi_name=cdi_name)])


def test_a_cdi_name_may_have_all_that_cdi_allows() -> None:
    assert name_devices("u-1", [device(cdi_name="0.A_b:c-9")]) == ["0.A_b:c-9"]


@pytest.mark.parametrize("kind", ["", "lamp", "example.com/", "1st.example.com/lamp", "example.com/la mp"])
def test_a_kind_that_cdi_refuses_is_refused_at_the_start(tmp_path: Path, kind: str) -> None:
    with pytest.raises(InvalidObjectError, match="CDI kind"):
        CdiSpecs(tmp_path, kind, DRIVER)


@pytest.fixture
def cdi(tmp_path: Path) -> CdiSpecs:
    """An open CDI directory."""
    made = CdiSpecs(tmp_path / "run/cdi", KIND, DRIVER)
    made.open(set)
    return made


SPEC = {"cdiVersion": "0.3.0", "kind": KIND, "devices": []}


def file_of(cdi: CdiSpecs, uid: str) -> Path:
    """The spec of a claim."""
    return spec_path(cdi.directory, DRIVER, uid)


def test_a_spec_is_written_readable_for_the_runtime_and_removed(cdi: CdiSpecs) -> None:
    cdi.write("u-1", SPEC)
    assert os.listdir(cdi.directory) == ["lamps.example.com_claim-u-1.json"]
    assert json.loads(file_of(cdi, "u-1").read_text()) == SPEC
    assert file_of(cdi, "u-1").stat().st_mode & 0o777 == 0o644
    cdi.remove("u-1")
    cdi.remove("u-1")
    assert os.listdir(cdi.directory) == []


def test_writing_nothing_removes_what_was_there(cdi: CdiSpecs) -> None:
    cdi.write("u-1", SPEC)
    cdi.write("u-1", None)
    assert os.listdir(cdi.directory) == []


@pytest.mark.parametrize("uid", ["../../etc/x", "/etc/passwd", "a/b", "..", "x" * 253])
def test_hostile_uids_stay_in_the_directory(cdi: CdiSpecs, uid: str) -> None:
    cdi.write(uid, SPEC)
    assert len(os.listdir(cdi.directory)) == 1
    assert file_of(cdi, uid).parent == cdi.directory
    cdi.remove(uid)
    assert os.listdir(cdi.directory) == []


@pytest.mark.parametrize("content", [None, b"", b"{}", b"\xff"])
def test_a_lost_or_damaged_spec_is_written_again(cdi: CdiSpecs, content: bytes | None) -> None:
    if content is not None:
        file_of(cdi, "u-1").write_bytes(content)
    cdi.ensure("u-1", SPEC)
    assert json.loads(file_of(cdi, "u-1").read_text()) == SPEC


def test_a_spec_that_is_as_it_should_be_is_not_touched(cdi: CdiSpecs) -> None:
    cdi.write("u-1", SPEC)
    before = file_of(cdi, "u-1").stat()
    cdi.ensure("u-1", SPEC)
    assert file_of(cdi, "u-1").stat() == before


def test_a_directory_that_was_wiped_comes_back(cdi: CdiSpecs) -> None:
    cdi.directory.rmdir()
    cdi.ensure("u-1", SPEC)
    assert json.loads(file_of(cdi, "u-1").read_text()) == SPEC


def test_opening_removes_what_belongs_to_no_claim_and_nothing_of_others(cdi: CdiSpecs) -> None:
    mine = ["lamps.example.com_claim-u-1.json", "lamps.example.com_claim-u-2.json"]
    temporary = [f"{PREFIX}lamps.example.com_claim-u-{number}.json{END}" for number in (1, 3)]
    others = [
        "lamps.example.com.json",
        "lamps.example.community_claim-u-2.json",
        "example.com_claim-u-2.json",
        f"{PREFIX}example.com_claim-u-2.json{END}",
        "vendor.yaml",
    ]
    for name in (*mine, *others, *temporary):
        (cdi.directory / name).touch()
    cdi.open({"u-1"}.__contains__)
    assert sorted(os.listdir(cdi.directory)) == sorted(["lamps.example.com_claim-u-1.json", *others])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("acme.com", "acme.com/gpu-net"), ("acme.com-gpu", "acme.com-gpu/net")),
        (("example.com", KIND), ("lamps.example.com", KIND)),
    ],
)
def test_drivers_whose_kinds_are_alike_leave_the_specs_of_each_other_alone(
    tmp_path: Path, first: tuple[str, str], second: tuple[str, str]
) -> None:
    """Also those of one claim that has devices of both."""
    drivers = [CdiSpecs(tmp_path, kind, name) for name, kind in (first, second)]
    for each in drivers:
        each.write("u-1", {**SPEC, "kind": each.kind})
    for each in drivers:
        each.open({"u-1"}.__contains__)
    assert sorted(os.listdir(tmp_path)) == sorted(f"{name}_claim-u-1.json" for name, _ in (first, second))
    drivers[1].open(NO_CLAIM)
    assert os.listdir(tmp_path) == [f"{first[0]}_claim-u-1.json"]
    drivers[0].remove("u-1")
    assert os.listdir(tmp_path) == []


def test_the_spec_of_a_claim_that_another_process_works_on_stays(cdi: CdiSpecs) -> None:
    """Whether it writes its checkpoint before the spec or after it."""
    locks = NamedLocks()
    for uid in ("u-old", "u-in-hand"):
        cdi.write(uid, SPEC)

    def prepared_by_now(claim: str) -> bool:
        cdi.write("u-new", SPEC)
        return claim == "u-new"

    with locks.hold([claim_lock("u-in-hand")]):
        cdi.open(prepared_by_now, locks)
    assert sorted(os.listdir(cdi.directory)) == sorted(file_of(cdi, uid).name for uid in ("u-new", "u-in-hand"))


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file", tmp_path / "file/cdi"):
        with pytest.raises(SettingsError, match=f"cannot use CDI directory {directory}"):
            CdiSpecs(directory, KIND, DRIVER).open(NO_CLAIM)


def test_what_cannot_be_written_or_removed_is_the_claims_error(tmp_path: Path) -> None:
    def read_only(step: str, _path: Path) -> None:
        raise OSError(30, "Read-only file system")

    cdi = CdiSpecs(tmp_path, KIND, DRIVER, Files(read_only))
    with pytest.raises(ClaimError, match=r"cannot write CDI spec .*claim-u-1.json: Read-only file system"):
        cdi.write("u-1", SPEC)
    file_of(cdi, "u-1").touch()
    with pytest.raises(ClaimError, match=r"cannot remove CDI spec .*claim-u-1.json: Read-only file system"):
        cdi.remove("u-1")
