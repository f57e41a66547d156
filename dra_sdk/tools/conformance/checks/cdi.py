"""The CDI specs: a container gets what was allocated for it, and nothing else."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final

from dra_sdk.errors import InvalidObjectError
from dra_sdk.tools.conformance.cdi import CdiView, InjectedEdits
from dra_sdk.tools.conformance.check import Level, Need
from dra_sdk.tools.conformance.claims import TestClaim
from dra_sdk.tools.conformance.outcomes import CheckFailedError, NotApplicableError, expect
from dra_sdk.tools.conformance.run import Run, placed_files
from dra_sdk.tools.simulator.kubelet.calls import ClaimResponse
from dra_sdk.wire.cdi import parse_qualified_name
from dra_sdk.wire.cdi.reading import read_spec

CDI: Final = Level("cdi", "CDI output and isolation between containers")

_SPEC: Final = "Container Device Interface SPEC.md"
_KEP: Final = "KEP-4381, NodePrepareResource"
_E2E: Final = "Kubernetes test/e2e/dra, must map configs and devices to the right containers"
_PROTO: Final = "k8s.io/kubelet pkg/apis/dra/v1/api.proto, Device.request_names"
_LIBRARY: Final = "container-device-interface pkg/cdi"
ROUNDS: Final = 20
"""How often a claim is prepared while the directory is read."""
READ_INTERVAL: Final = 0.0005
"""Seconds between two readings of the directory."""
FOREIGN_SPEC: Final = b"""{"cdiVersion": "0.5.0", "kind": "foreign.example.com/thing",
"devices": [{"name": "one", "containerEdits": {"env": ["A=B"]}}]}"""
BROKEN_SPEC: Final = b'{"cdiVersion": "0.5.0", "kind":'


@CDI.must("CDI-001", f"{_KEP}: fully qualified device names, and CDI files for them")
def defines_its_cdi_devices(run: Run) -> None:
    """Each CDI device in an answer is named `vendor/class=device` and defined by a spec when the answer arrives."""
    cdi_ids = run.cdi_ids(run.prepare_one(run.claims.create_one()))
    for cdi_id in cdi_ids:
        try:
            parse_qualified_name(cdi_id)
        except InvalidObjectError as error:
            raise CheckFailedError(str(error)) from error
    missing = run.cdi.unresolved(cdi_ids)
    problems = {str(path): errors for path, errors in run.cdi.load().errors.items()}
    expect(not missing, f"no spec defines {', '.join(missing)}", errors=problems)


@CDI.must("CDI-002", f"{_SPEC}; {_LIBRARY}")
def writes_valid_specs(run: Run) -> None:
    """Every spec that prepare writes is valid, and needs no newer CDI version than it declares."""
    before = run.spec_files()
    run.cdi_ids(run.prepare_one(run.claims.create_one()))
    for path in run.new_spec_files(before):
        try:
            read_spec(path.read_bytes(), path.name)
        except InvalidObjectError as error:
            raise CheckFailedError(str(error), spec=path.read_text(errors="replace")) from error


@CDI.must("CDI-003", "KEP-4381, NodeUnprepareResources: must undo the work")
def removes_its_specs(run: Run) -> None:
    """Unpreparing a claim removes the specs that preparing it wrote."""
    before = run.spec_files()
    claim = run.claims.create_one()
    run.cdi_ids(run.prepare_one(claim))
    run.unprepare(claim)
    run.expect_specs_removed(before, "after the claim was unprepared")


@CDI.must("CDI-004", f"{_SPEC}, Container edits; KEP-5970, behaviour 5")
def changes_the_container(run: Run) -> None:
    """A container runtime can apply the CDI devices, the host files that they name exist, and the container changes."""
    spec = run.container(run.cdi_ids(run.prepare_one(run.claims.create_one())))
    expect(not InjectedEdits.of(spec).empty, "the container has nothing of its device", container=spec)
    sources = [mount["source"] for mount in spec.get("mounts") or ()]
    missing = [source for source in sources if not run.cdi.on_host(source).exists()]
    expect(not missing, f"sources of mounts that do not exist on the host: {', '.join(missing)}")


@CDI.must("CDI-005", f"{_E2E}; {_PROTO}")
def keeps_requests_apart(run: Run) -> None:
    """A container that uses one request of a claim gets no CDI device that was made for another request of it."""
    common = _existing_devices(run)
    claim = _claim_with_two_requests(run)
    devices = run.prepare_one(claim).devices
    ids = {
        name: {cdi_id for device in devices if device.serves(name) for cdi_id in device.cdi_ids}
        for name in claim.requests
    }
    one, other = ids.values()
    if not one | other:
        raise NotApplicableError("the driver answers without CDI devices")
    shared = sorted((one & other) - common)
    expect(not shared, f"both requests get {', '.join(shared)}", by_request={name: sorted(ids[name]) for name in ids})


@CDI.must("CDI-006", f"{_E2E}; {_SPEC}: edits of the whole spec go with each of its devices")
def other_requests_change_nothing(run: Run) -> None:
    """A container that uses one request of a claim gets no more than if the claim had no other request."""
    claim = _claim_with_two_requests(run)
    first = min(claim.requests)
    entry = run.prepare_one(claim)
    ids = run.cdi_ids(ClaimResponse("", tuple(device for device in entry.devices if device.serves(first))))
    together = InjectedEdits.of(run.container(ids))
    run.unprepare(claim)
    single = run.claims.create_one(run.claims.pick(2)[0], requests=[first])
    alone = InjectedEdits.of(run.container(run.prepare_one(single).cdi_ids))
    more = any(one > other for one, other in zip(together.size, alone.size, strict=True))
    reason = f"request {first} gets more when the claim has another request"
    expect(not more, reason, cdi_ids=ids, together=vars(together), alone=vars(alone))


@CDI.must("CDI-007", f"{_KEP}; kubeletplugin: names of CDI devices should not be reused")
def keeps_claims_apart(run: Run) -> None:
    """Claims on different devices, or on different shares of one, have no CDI device in common that a claim made."""
    common = _existing_devices(run)
    claims = [run.claims.create_one(device) for device in run.claims.pick(2)]
    one, other = (set(run.cdi_ids(run.prepare_one(claim))) for claim in claims)
    shared = sorted((one & other) - common)
    expect(not shared, f"both claims get {', '.join(shared)}")


@CDI.must("CDI-008", f"{_SPEC}: one directory for the specs of all vendors", Need.DISRUPTION)
def leaves_other_specs(run: Run) -> None:
    """Specs of other vendors, even damaged ones, stay as they are and do not make the driver fail."""
    specs = {"foreign-conformance.json": FOREIGN_SPEC, "foreign-conformance-broken.json": BROKEN_SPEC}
    paths = {run.cdi.directory / name: content for name, content in specs.items()}
    with placed_files(paths):
        claim = run.prepared()
        run.unprepare(claim)
        changed = [path.name for path, content in paths.items() if _content(path) != content]
        expect(not changed, f"changed or removed: {', '.join(changed)}")


@CDI.should("CDI-009", f"{_LIBRARY}, Cache.WriteSpec: temporary file and rename")
def writes_specs_atomically(run: Run) -> None:
    """A spec appears in the directory complete, because a runtime may read it at any time."""
    before = run.spec_files()
    claim = run.claims.create_one()
    with _DirectoryReader(run.cdi, before) as reader:
        for _ in range(ROUNDS):
            run.prepare(claim)
            run.unprepare(claim)
    expect(not reader.partial, f"an incomplete spec was read {len(reader.partial)} time(s)", first=reader.partial[:1])


def _existing_devices(run: Run) -> set[str]:
    """Return the CDI devices that exist before a claim is prepared; a driver may give them to every claim."""
    run.driver.start()
    return set(run.cdi.load().devices)


def _claim_with_two_requests(run: Run) -> TestClaim:
    return run.claims.create(run.claims.pick(2), requests=["first", "second"])


def _content(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


class _DirectoryReader:
    """Reads new specs in a thread until the context ends; `partial` has the ends of those that cannot be parsed."""

    def __init__(self, cdi: CdiView, before: list[Path]) -> None:
        self.partial: list[str] = []
        self._cdi = cdi
        self._before = set(before)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._read, name="conformance-reader")

    def __enter__(self) -> _DirectoryReader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._done.wait(READ_INTERVAL):
            for path, content in self._cdi.contents().items():
                if path not in self._before and not _is_valid(content):
                    self.partial.append(content.decode(errors="replace")[-200:])


def _is_valid(content: bytes) -> bool:
    try:
        read_spec(content, "spec")
    except InvalidObjectError:
        return False
    return True
