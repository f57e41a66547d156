"""Socket paths: within the limit of the kernel, unique in a rolling update, and nobody else's."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk.errors import SettingsError
from dra_sdk.node.kubelet import sockets
from dra_sdk.node.kubelet.sockets import SocketPaths, remove_dead, socket_paths
from dra_sdk.rpc.sockets import LIMIT, hidden

REGISTRY = Path("/var/lib/kubelet/plugins_registry")
UID = "0a1b2c3d-1111-4222-8333-444455556666"
OTHER = "ffffffff-1111-4222-8333-444455556666"


def data(driver: str) -> Path:
    return Path("/var/lib/kubelet/plugins") / driver


def test_one_instance_has_the_names_that_everybody_expects() -> None:
    paths = socket_paths("gpu.example.com", REGISTRY, data("gpu.example.com"))
    assert paths.registration == REGISTRY / "gpu.example.com-reg.sock"
    assert paths.service == Path("/var/lib/kubelet/plugins/gpu.example.com/dra.sock")


def test_instances_of_a_rolling_update_have_names_of_their_own() -> None:
    old, new = (socket_paths("gpu.example.com", REGISTRY, data("gpu.example.com"), uid) for uid in (UID, OTHER))
    assert old.registration == REGISTRY / f"gpu.example.com-{UID}-reg.sock"
    assert old.service.name == f"dra-{UID}.sock"
    assert {old.registration, old.service}.isdisjoint({new.registration, new.service})


@pytest.mark.parametrize("length", range(1, 64))
def test_every_driver_name_fits_the_default_directories_in_a_rolling_update(length: int) -> None:
    driver = "d" * length
    old, new = (socket_paths(driver, REGISTRY, data(driver), uid) for uid in (UID, OTHER))
    for path in (old.registration, old.service, new.registration, new.service):
        assert len(bytes(path)) <= LIMIT
        assert not path.name.startswith(".")
    assert old.registration != new.registration
    assert old.service != new.service


def test_long_names_fall_back_to_hashes_that_differ_by_driver_and_instance() -> None:
    tight = Path("/" + "x" * 70)
    names = {
        (driver, uid): socket_paths(driver, tight, Path("/d"), uid).registration.name
        for driver in ("a" * 63, "b" * 63)
        for uid in (UID, OTHER)
    }
    assert len(set(names.values())) == 4
    assert all(name.startswith("dra-") and name.endswith("-reg.sock") for name in names.values())


def test_a_path_of_exactly_the_limit_is_taken_and_can_be_bound(socket_dir: Path) -> None:
    driver = "gpu.example.com"
    filler = LIMIT - len(bytes(socket_dir)) - len("/") - len(f"/{driver}-reg.sock")
    registry = socket_dir / ("x" * filler)
    registry.mkdir()
    path = socket_paths(driver, registry, Path("/d")).registration
    assert len(bytes(path)) == LIMIT == 107
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))
    longer = registry.with_name(registry.name + "x")
    with pytest.raises(SettingsError, match=r"driver gpu.example.com: socket path .* has 108 bytes, the limit is 107"):
        socket_paths(driver, longer, Path("/d"))


def test_where_nothing_fits_the_directory_is_to_blame() -> None:
    with pytest.raises(SettingsError, match="use a shorter directory or driver name"):
        socket_paths("gpu.example.com", REGISTRY, Path("/" + "x" * 100), UID)


def test_bytes_count_not_characters() -> None:
    with pytest.raises(SettingsError, match="the limit is 107"):
        socket_paths("gpu.example.com", REGISTRY, Path("/" + "ä" * 60))


@given(st.integers(1, 130), st.text("abc", min_size=1, max_size=63), st.sampled_from(["", UID, "x" * 100]))
def test_a_path_fits_or_is_refused(length: int, driver: str, instance: str) -> None:
    try:
        paths = socket_paths(driver, Path("/" + "r" * length), Path("/" + "d" * length), instance)
    except SettingsError:
        return
    for path in (paths.registration, paths.service):
        assert len(bytes(path)) <= LIMIT
        assert len(bytes(hidden(path))) <= len(bytes(path))
        assert hidden(path).name.startswith(".")


def test_dead_sockets_of_killed_instances_are_removed_and_living_ones_kept(
    socket_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "YOUNG", -1.0)
    mine = socket_paths("l.example.com", socket_dir / "registry", socket_dir / "data", "mine")
    alive = socket_paths("l.example.com", socket_dir / "registry", socket_dir / "data", "alive")
    dead = socket_paths("l.example.com", socket_dir / "registry", socket_dir / "data", "dead")
    lonely = socket_paths("l.example.com", socket_dir / "registry", socket_dir / "data")
    gone = [dead.registration, dead.service, lonely.registration, lonely.service]
    others = [mine.registration.with_name("other.example.com-reg.sock"), mine.service.with_name("other.sock")]
    kept = [mine.registration, mine.service, alive.registration, alive.service, *others]
    mine.registration.parent.mkdir()
    mine.service.parent.mkdir()
    with ExitStack() as stack:
        for path in [*gone, *kept]:
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(str(path))
            if path in {alive.registration, alive.service}:
                server.listen()
            else:
                server.close()
        file = mine.registration.with_name("l.example.com-x-reg.sock")
        file.write_text("no socket")
        assert set(remove_dead(mine, "l.example.com")) == set(gone)
        assert set(socket_dir.glob("*/*")) == {*kept, file}


def test_on_a_common_socket_other_drivers_are_left_alone(socket_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "YOUNG", -1.0)
    common = SocketPaths(socket_dir / "l.example.com-reg.sock", socket_dir / "l.example.com-reg.sock")
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(socket_dir / "dra-hash-reg.sock"))
    assert remove_dead(common, "l.example.com") == []
