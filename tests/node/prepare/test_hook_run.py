"""One run of the hook: the contract of `dra_prepare`, the journal, and what is known when something goes wrong."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from dra_sdk import (
    AllocatedDevice,
    Claim,
    ContainerEdits,
    DriverInfo,
    HeldClaim,
    HeldDevice,
    Node,
    PermanentError,
    PreparedDevice,
)
from dra_sdk.errors import DraError, HookError, StateError
from dra_sdk.extensions import hookimpl
from dra_sdk.loader import Driver
from dra_sdk.node.files import Files
from dra_sdk.node.prepare.checkpoint import Checkpoint
from dra_sdk.node.prepare.checkpoint_store import CheckpointStore
from dra_sdk.node.prepare.engine import HookRun

DEVICES = tuple(AllocatedDevice("r", "p", f"d-{index}", None) for index in range(3))
NODE = Node("n")


class Hooks:
    """A driver whose prepare is given."""

    def __init__(self, prepare: Any = None, unprepare: Any = None) -> None:
        self.prepare, self.unprepare = prepare, unprepare

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("lamp.example.com")

    def dra_discover(self) -> list[Any]:
        return []

    def dra_prepare(self, claim: Claim[Any]) -> Any:
        return self.prepare(claim)

    def dra_unprepare(self, claim: HeldClaim) -> None:
        self.unprepare(claim)


class Bench:
    """A run over real files."""

    def __init__(
        self, directory: Path, prepare: Any, files: Files | None = None, extensions: Iterable[object] = ()
    ) -> None:
        self.store = CheckpointStore(directory / "claims", files)
        self.store.open()
        kept = tuple(HeldDevice("r", "p", device.name) for device in DEVICES)
        self.started = Checkpoint(HeldClaim("ns", "n", "u-1", kept, complete=False), "b")
        driver = Driver.of(Hooks(prepare), extensions)
        self.hook_run = HookRun(driver, self.store.put, self.started, undoable=True)
        self.claim: Claim[None] = Claim("ns", "n", "u-1", NODE, DEVICES, journal=self.hook_run.journal)

    def run(self) -> list[PreparedDevice]:
        self.store.put(self.started)
        return self.hook_run.call_hook(self.claim)

    def on_disk(self) -> Checkpoint:
        store = CheckpointStore(self.store.directory)
        store.open()
        found = store.get("u-1")
        assert found
        return found


def test_devices_come_back_in_the_order_of_the_allocation(tmp_path: Path) -> None:
    bench = Bench(tmp_path, lambda claim: [device.prepared() for device in reversed(claim.devices)])
    assert [each.name for each in bench.run()] == ["d-0", "d-1", "d-2"]


def test_a_list_a_tuple_and_a_generator_are_all_fine(tmp_path: Path) -> None:
    for kind in (list, tuple, iter):
        made = Bench(tmp_path, lambda claim, kind=kind: kind([device.prepared() for device in claim.devices]))
        assert len(made.run()) == 3


def test_each_device_is_on_disk_before_the_hook_goes_on(tmp_path: Path) -> None:
    seen: list[list[dict[str, Any]]] = []

    def prepare(claim: Claim[Any]) -> Iterator[PreparedDevice]:
        for index, device in enumerate(claim.devices):
            seen.append([dict(each.data) for each in bench.on_disk().claim.devices])
            yield device.prepared(data={"slot": index})

    bench = Bench(tmp_path, prepare)
    bench.run()
    assert seen == [[{}, {}, {}], [{"slot": 0}, {}, {}], [{"slot": 0}, {"slot": 1}, {}]]
    assert [each.data for each in bench.hook_run.checkpoint.claim.devices] == [{"slot": 0}, {"slot": 1}, {"slot": 2}]


def test_the_journal_is_on_disk_before_the_hook_changes_anything(tmp_path: Path) -> None:
    seen: list[Any] = []

    def prepare(claim: Claim[Any]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            claim.journal({"old": device.name})
            seen.append(list(bench.on_disk().claim.journal))
            yield device.prepared()

    bench = Bench(tmp_path, prepare)
    bench.run()
    assert seen[2] == [{"old": "d-0"}, {"old": "d-1"}, {"old": "d-2"}]


def test_journal_entries_and_data_are_copies(tmp_path: Path) -> None:
    def prepare(claim: Claim[Any]) -> Iterator[PreparedDevice]:
        entry: dict[str, Any] = {}
        for device in claim.devices:
            entry["lamp"] = device.name
            claim.journal(entry)
            yield device.prepared(data=entry)

    bench = Bench(tmp_path, prepare)
    bench.run()
    assert [each["lamp"] for each in bench.hook_run.checkpoint.claim.journal] == ["d-0", "d-1", "d-2"]
    assert [each.data["lamp"] for each in bench.hook_run.checkpoint.claim.devices] == ["d-0", "d-1", "d-2"]


def test_data_is_what_it_will_be_after_a_restart(tmp_path: Path) -> None:
    data = MappingProxyType({"cpus": (1, 2), 3: None})
    bench = Bench(tmp_path, lambda claim: [device.prepared(data=data) for device in claim.devices])
    bench.run()
    bench.hook_run.save()
    assert bench.hook_run.checkpoint.claim.devices[0].data == {"cpus": [1, 2], "3": None}
    assert bench.on_disk() == bench.hook_run.checkpoint


def test_threads_of_a_hook_may_use_the_journal_together(tmp_path: Path) -> None:
    def prepare(claim: Claim[Any]) -> list[PreparedDevice]:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(claim.journal, [{"n": index} for index in range(40)]))
        return [device.prepared() for device in claim.devices]

    bench = Bench(tmp_path, prepare)
    bench.run()
    assert sorted(each["n"] for each in bench.on_disk().claim.journal) == list(range(40))


def test_a_journal_that_is_kept_beyond_the_hook_is_closed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, lambda claim: [device.prepared() for device in claim.devices])
    bench.run()
    bench.store.delete("u-1")
    with pytest.raises(HookError, match="its journal is closed"):
        bench.claim.journal({"late": True})
    assert bench.store.get("u-1") is None


def a(name: str = "d-0", **more: Any) -> PreparedDevice:
    return PreparedDevice(**{"request": "r", "pool": "p", "name": name, **more})


WRONG = [
    (None, "returned None, want prepared devices"),
    (7, "returned 7, want prepared devices"),
    ("d-0", "returned 'd-0', want prepared devices"),
    (b"d-0", "want prepared devices"),
    (["d-0"], "yielded 'd-0', want device.prepared"),
    ([None], "yielded None, want device.prepared"),
    (list(DEVICES), "want device.prepared"),
    ([], "yielded nothing for p/d-0, p/d-1, p/d-2"),
    ([a("d-0"), a("d-2")], "yielded nothing for p/d-1"),
    ([a("d-0"), a("d-0")], "yielded device p/d-0 for request r twice"),
    ([a("d-0"), a("d-1"), a("d-2"), a("d-2")], "yielded device p/d-2 for request r twice"),
    ([a("d-0"), a("d-1"), a("d-2"), a("d-3")], "device p/d-3 for request r twice, or it is not among"),
    ([a("d-9")], "device p/d-9 for request r twice, or it is not among the claim's devices"),
    ([a(request="q")], "for request q twice, or it is not among"),
    ([a(pool="q")], "device q/d-0"),
    ([a(share_id="s")], "or it is not among"),
    ([a(data=None)], "data of device p/d-0 must be a JSON object, is None"),
    ([a(data=["x"])], "data of device p/d-0 must be a JSON object, is ['x']"),
    ([a(data={"x": {1, 2}})], "data of device p/d-0 is not JSON"),
    ([a(data={"x": float("nan")})], "data of device p/d-0 is not JSON"),
    ([a(data={"x": Path("/x")})], "data of device p/d-0 is not JSON"),
    ([a(data=functools.reduce(lambda inner, _: {"x": inner}, range(100_000), {}))], "is not JSON: nested too deeply"),
    ([a("d-0"), a("d-1"), a("d-2", data={"x": object()})], "data of device p/d-2 is not JSON"),
    ([a(edits=None)], "edits of device p/d-0 must be ContainerEdits, are None"),
    ([a(edits={"env": {}})], "edits of device p/d-0 must be ContainerEdits"),
]


@pytest.mark.parametrize(("answer", "message"), WRONG)
def test_an_answer_that_breaks_the_contract_is_the_hooks_error(tmp_path: Path, answer: Any, message: str) -> None:
    bench = Bench(tmp_path, lambda _claim: answer)
    with pytest.raises(HookError) as caught:
        bench.run()
    assert message in str(caught.value)
    assert "driver lamp.example.com" in str(caught.value)
    assert not bench.on_disk().claim.complete


@pytest.mark.parametrize("entry", [None, "x", ["x"], {"x": object()}, {"x": float("inf")}])
def test_a_journal_entry_must_be_a_json_object(tmp_path: Path, entry: Any) -> None:
    bench = Bench(tmp_path, lambda claim: claim.journal(entry))
    with pytest.raises(HookError, match="a journal entry"):
        bench.run()
    assert bench.on_disk().claim.journal == ()


@pytest.mark.parametrize("generator", [True, False])
@pytest.mark.parametrize(
    ("raised", "caught", "text"),
    [
        (PermanentError("no such lamp"), PermanentError, "no such lamp"),
        (OSError(5, "bus error"), HookError, "dra_prepare of driver lamp.example.com failed: OSError: [Errno 5] bus e"),
        (SystemExit(3), HookError, "failed: SystemExit: 3"),
        (StopIteration(), HookError, "failed: "),
        (AssertionError(), HookError, "failed: AssertionError: "),
    ],
)
def test_a_raise_is_an_error_of_ours(
    tmp_path: Path, generator: bool, raised: BaseException, caught: type[DraError], text: str
) -> None:
    def lazily(claim: Claim[Any]) -> Iterator[PreparedDevice]:
        yield claim.devices[0].prepared(data={"slot": 0})
        raise raised

    def at_once(claim: Claim[Any]) -> Any:
        raise raised

    bench = Bench(tmp_path, lazily if generator else at_once)
    with pytest.raises(caught) as error:
        bench.run()
    assert text in str(error.value)
    swallowed = generator and isinstance(raised, StopIteration)  # Python makes another error of it, without a line
    assert ("(test_hook_run.py, line " in str(error.value)) == (caught is HookError and not swallowed)
    assert bench.hook_run.checkpoint.claim.devices[0].data == ({"slot": 0} if generator else {})


def test_the_generator_is_closed_before_anything_else_happens(tmp_path: Path) -> None:
    order: list[str] = []

    def prepare(claim: Claim[Any]) -> Iterator[PreparedDevice]:
        try:
            yield claim.devices[0].prepared()
            yield claim.devices[0].prepared()
        finally:
            order.append("closed")

    keep: list[Iterator[PreparedDevice]] = []

    def kept(claim: Claim[Any]) -> Iterator[PreparedDevice]:
        keep.append(prepare(claim))
        return keep[0]

    bench = Bench(tmp_path, kept)
    with pytest.raises(HookError, match="twice"):
        bench.run()
    assert order == ["closed"]


def test_the_last_devices_data_is_known_even_before_it_is_written(tmp_path: Path) -> None:
    bench = Bench(tmp_path, lambda claim: [device.prepared(data={"n": device.name}) for device in claim.devices])
    bench.run()
    assert [each.data["n"] for each in bench.hook_run.checkpoint.claim.devices] == ["d-0", "d-1", "d-2"]


@pytest.mark.parametrize(
    ("data", "during", "after"),
    [
        ({"x": 1}, 4, 5),  # the beginning, the journal, two devices of three; and the third
        ({}, 2, 2),  # such a device changes nothing
    ],
)
def test_what_is_on_disk_already_is_not_written_again(
    tmp_path: Path, data: dict[str, Any], during: int, after: int
) -> None:
    writes: list[str] = []

    def prepare(claim: Claim[Any]) -> list[PreparedDevice]:
        claim.journal({"x": 1})
        return [device.prepared(data=data) for device in claim.devices]

    bench = Bench(tmp_path, prepare, Files(lambda step, _path: writes.append(step)))
    bench.run()
    assert writes.count("rename") == during
    bench.hook_run.save()
    bench.hook_run.save()
    assert writes.count("rename") == after


def test_the_hook_is_stopped_when_its_progress_cannot_be_written(tmp_path: Path) -> None:
    writes: list[str] = []

    def fail(found: str, _path: Path) -> None:
        writes.append(found)
        if writes.count("create") == 2:
            raise OSError(28, "No space left on device")

    passed: list[str] = []

    def prepare(claim: Claim[Any]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            passed.append(device.name)
            yield device.prepared(data={"n": device.name})

    bench = Bench(tmp_path, prepare, Files(fail))
    with pytest.raises(StateError, match="No space left"):
        bench.run()
    assert passed == ["d-0"]
    assert bench.hook_run.checkpoint.claim.devices[0].data == {"n": "d-0"}


HELD = HeldClaim("ns", "n", "u-1")


def test_undo_calls_the_hook_and_needs_none() -> None:
    seen: list[HeldClaim] = []
    Driver.of(Hooks(unprepare=seen.append)).unprepare(HELD, NODE)
    assert seen == [HELD]

    class Without:
        dra_driver_info, dra_discover, dra_prepare = Hooks.dra_driver_info, Hooks.dra_discover, Hooks.dra_prepare

    Driver.of(Without()).unprepare(HELD, NODE)


@pytest.mark.parametrize(
    ("raised", "caught", "text"),
    [
        (PermanentError("stuck"), PermanentError, "stuck"),
        (OSError(16, "busy"), HookError, "dra_unprepare of driver lamp.example.com failed: OSError: [Errno 16] busy"),
        (SystemExit(1), HookError, "SystemExit: 1"),
    ],
)
def test_a_raise_of_undo_is_an_error_of_ours(raised: BaseException, caught: type[DraError], text: str) -> None:
    def unprepare(_claim: HeldClaim) -> None:
        raise raised

    with pytest.raises(caught) as error:
        Driver.of(Hooks(unprepare=unprepare)).unprepare(HELD, NODE)
    assert text in str(error.value)


def test_an_extension_can_see_devices_as_they_are_prepared(tmp_path: Path) -> None:
    order: list[str] = []

    def prepare(claim: Claim[Any]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            order.append(f"hook {device.name}")
            yield device.prepared()

    class Audit:
        @hookimpl(wrapper=True)
        def dra_prepare(self, claim: Claim[Any]) -> Any:
            found = yield
            return self.watch(found)

        def watch(self, found: Any) -> Iterator[PreparedDevice]:
            for each in found:
                order.append(f"audit {each.name}")
                yield each

    bench = Bench(tmp_path, prepare, extensions=[Audit()])
    bench.run()
    assert order[:4] == ["hook d-0", "audit d-0", "hook d-1", "audit d-1"]


def test_edits_do_not_have_to_be_given(tmp_path: Path) -> None:
    bench = Bench(tmp_path, lambda claim: [device.prepared() for device in claim.devices])
    assert [each.edits for each in bench.run()] == [ContainerEdits()] * 3
