"""The CDI specs: that a container gets what was allocated for it, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dra_sdk.errors import DraError, InvalidObjectError
from dra_sdk.model import JSON
from dra_sdk.tools.conformance.cdi import Cdi, View
from dra_sdk.tools.conformance.check import CheckFailed, Level, Need, NotApplicable, expect
from dra_sdk.tools.conformance.claims import TestClaim
from dra_sdk.tools.conformance.plugin import Entry
from dra_sdk.tools.conformance.run import Run
from dra_sdk.wire.cdi import parse_qualified_name
from dra_sdk.wire.cdi.reading import read_spec

LEVEL = Level("cdi", "CDI output and isolation between containers")
SPEC = "Container Device Interface SPEC.md"
KEP = "KEP-4381, NodePrepareResource"
E2E = "Kubernetes test/e2e/dra, must map configs and devices to the right containers"
PROTO = "k8s.io/kubelet pkg/apis/dra/v1/api.proto, Device.request_names"
ROUNDS = 20
FOREIGN_SPEC = b"""{"cdiVersion": "0.5.0", "kind": "foreign.example.com/thing",
"devices": [{"name": "one", "containerEdits": {"env": ["A=B"]}}]}"""
BROKEN_SPEC = b'{"cdiVersion": "0.5.0", "kind":'


@LEVEL.must("CDI-001", f"{KEP}: fully qualified device names, and CDI files for them")
def defines_what_it_answers(run: Run) -> None:
    """Each CDI device of an answer is named `vendor/class=device` and defined by a spec once the answer is there."""
    cdi_ids = run.with_cdi(run.prepared_one(run.claims.one()))
    for each in cdi_ids:
        try:
            parse_qualified_name(each)
        except InvalidObjectError as error:
            raise CheckFailed(str(error)) from error
    missing = run.cdi.unresolved(cdi_ids)
    problems = {str(path): errors for path, errors in run.cdi.load().errors.items()}
    expect(not missing, f"no spec defines {', '.join(missing)}", errors=problems)


@LEVEL.must("CDI-002", f"{SPEC}; container-device-interface pkg/cdi")
def writes_valid_specs(run: Run) -> None:
    """Every spec that preparing writes is valid, and needs no newer CDI version than the one it declares."""
    before = run.specs()
    run.with_cdi(run.prepared_one(run.claims.one()))
    written = run.new_specs(before)
    if not written:
        raise NotApplicable("preparing writes no spec of its own")
    for path in written:
        try:
            read_spec(path.read_bytes(), path.name)
        except InvalidObjectError as error:
            raise CheckFailed(str(error), spec=path.read_text(errors="replace")) from error


@LEVEL.must("CDI-003", "KEP-4381, NodeUnprepareResources: must undo the work")
def removes_specs_again(run: Run) -> None:
    """Unpreparing a claim removes the specs that preparing it wrote."""
    before = run.specs()
    claim = run.claims.one()
    run.with_cdi(run.prepared_one(claim))
    run.unprepared(claim)
    run.nothing_left(before, "the claim was unprepared")


@LEVEL.must("CDI-004", f"{SPEC}, Container edits; KEP-5970, behaviour 5")
def changes_the_container(run: Run) -> None:
    """A container runtime can apply the CDI devices, the host files that they name exist, and the container changes."""
    cdi_ids = run.with_cdi(run.prepared_one(run.claims.one()))
    spec = container(run, cdi_ids)
    expect(not View.of(spec).empty, "the container has nothing of its device", container=spec)
    sources = [run.cdi.on_host(each["source"]) for each in spec.get("mounts") or ()]
    missing = [str(path) for path in sources if not path.exists()]
    expect(not missing, f"mounted, but not on the host: {', '.join(missing)}")


@LEVEL.must("CDI-005", f"{E2E}; {PROTO}")
def keeps_requests_apart(run: Run) -> None:
    """A container that uses one request of a claim gets no CDI device that was made for another request of it."""
    common = _there_already(run)
    claim = _two_requests(run)
    devices = run.prepared_one(claim).devices
    ids = {
        name: {cdi_id for each in devices if each.serves(name) for cdi_id in each.cdi_ids} for name in claim.requests
    }
    one, other = ids.values()
    if not one | other:
        raise NotApplicable("the driver answers without CDI devices")
    shared = sorted((one & other) - common)
    expect(not shared, f"both requests get {', '.join(shared)}", by_request=_lists(ids))


@LEVEL.must("CDI-006", f"{E2E}; {SPEC}: edits of the whole spec go with each of its devices")
def gives_a_request_no_more_than_its_own(run: Run) -> None:
    """A container that uses one request of a claim gets no more than if the claim had no other request."""
    both = _two_requests(run)
    first = min(both.requests)
    entry = run.prepared_one(both)
    ids = run.with_cdi(Entry("", tuple(each for each in entry.devices if each.serves(first))))
    beside = View.of(container(run, ids))
    run.unprepared(both)
    alone_claim = run.claims.one(run.claims.slots(2)[0], requests=[first])
    alone = View.of(container(run, run.prepared_one(alone_claim).cdi_ids))
    more = any(one > other for one, other in zip(beside.size, alone.size, strict=True))
    expect(
        not more, f"request {first} gets more beside another one", cdi_ids=ids, beside=vars(beside), alone=vars(alone)
    )


@LEVEL.must("CDI-007", "KEP-4381, NodePrepareResource; kubeletplugin: names of CDI devices should not be reused")
def keeps_claims_apart(run: Run) -> None:
    """Claims on different devices, or with different shares of one, have no CDI device that was made for a claim."""
    common = _there_already(run)
    one, other = (run.claims.one(slot) for slot in run.claims.slots(2))
    ids = [set(run.with_cdi(run.prepared_one(claim))) for claim in (one, other)]
    shared = sorted((ids[0] & ids[1]) - common)
    expect(not shared, f"both claims get {', '.join(shared)}")


@LEVEL.must("CDI-008", f"{SPEC}: one directory for the specs of all vendors", Need.ALONE)
def lets_other_specs_be(run: Run) -> None:
    """Specs of others in the directory, a damaged one among them, are neither changed nor an obstacle."""
    foreign = {"foreign-conformance.json": FOREIGN_SPEC, "foreign-conformance-broken.json": BROKEN_SPEC}
    with _files(run.cdi.directory, foreign) as paths:
        claim = run.claims.one()
        run.prepared(claim)
        run.unprepared(claim)
        changed = [path.name for path, content in paths.items() if _content(path) != content]
        expect(not changed, f"changed or removed: {', '.join(changed)}")


@LEVEL.should("CDI-009", "container-device-interface pkg/cdi, Cache.WriteSpec: temporary file and rename")
def shows_whole_specs_only(run: Run) -> None:
    """A spec appears in the directory whole: a runtime may read it at any time."""
    before = run.specs()
    claim = run.claims.one()
    with _Reader(run.cdi, before) as reader:
        for _ in range(ROUNDS):
            run.prepared(claim)
            run.unprepared(claim)
    expect(not reader.torn, f"{len(reader.torn)} time(s) a spec was read half written", first=reader.torn[:1])


def container(run: Run, cdi_ids: tuple[str, ...]) -> JSON:
    """The OCI spec of a container with these devices; CheckFailed where a runtime could not create it."""
    try:
        return run.cdi.container(cdi_ids)
    except (DraError, OSError) as error:
        raise CheckFailed(f"a container runtime cannot apply {', '.join(cdi_ids)}: {error}") from error


def _there_already(run: Run) -> set[str]:
    """The CDI devices that are there before a claim is prepared, which drivers may give to everybody."""
    run.start()
    return set(run.cdi.load().devices)


def _two_requests(run: Run) -> TestClaim:
    return run.claims.make(run.claims.slots(2), requests=["first", "second"])


def _lists(ids: dict[str, set[str]]) -> dict[str, list[str]]:
    return {name: sorted(found) for name, found in ids.items()}


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


@contextmanager
def _files(directory: Path, contents: dict[str, bytes]) -> Iterator[dict[Path, bytes]]:
    paths = {directory / name: content for name, content in contents.items()}
    try:
        for path, content in paths.items():
            path.write_bytes(content)
        yield paths
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


class _Reader:
    """Reads new specs over and over, and keeps what cannot be parsed."""

    def __init__(self, cdi: Cdi, before: list[Path]) -> None:
        self.torn: list[str] = []
        self._cdi = cdi
        self._before = set(before)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read, name="conformance-reader")

    def __enter__(self) -> _Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._done.wait(0.0005):
            for path, content in self._cdi.files().items():
                if path not in self._before and not _whole(content):
                    self.torn.append(content.decode(errors="replace")[-200:])


def _whole(content: bytes) -> bool:
    try:
        read_spec(content, "spec")
    except InvalidObjectError:
        return False
    return True
