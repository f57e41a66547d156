"""Who may reach the driver and its files, and what names from a request can do."""

from __future__ import annotations

import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from dra_sdk.tools.conformance.check import Level, Need, NotApplicable, expect
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.simulator.kubelet.records import ClaimRef
from dra_sdk.tools.simulator.request import RequestRecord

LEVEL = Level("security", "Sockets, files and names")
UNIX = "unix(7): connecting needs write permission on the socket"
CDI = "Container Device Interface SPEC.md, hooks: a spec names programs that run as root"
KEP = "KEP-4381, Security"
OTHERS_WRITE = stat.S_IWOTH
GROUP_OR_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
LONG = "x" * 5_000
MANY = 64
ALLOWED = {
    ("nodes", ""): {"get"},
    ("resourceclaims", ""): {"get"},
    ("resourceclaims", "status"): {"get", "patch", "update"},
    ("resourceslices", ""): {"get", "list", "watch", "create", "update", "patch", "delete"},
}
"""What KEP-4381 grants a driver on a node, and device status by KEP-4817."""


@LEVEL.must("SEC-001", UNIX)
def keeps_others_off_its_sockets(run: Run) -> None:
    """Only the sockets' owner can connect to them: whoever can call the driver can take devices from pods."""
    driver = run.driver
    for path in dict.fromkeys([driver.registration, driver.endpoint]):
        mode = path.stat().st_mode
        expect(not mode & GROUP_OR_OTHERS_WRITE, f"{path.name} has mode {_shown(mode)}")


@LEVEL.must("SEC-002", "Kubernetes volumes, hostPath: files on the host outlive the driver's pod")
def keeps_others_out_of_its_data(run: Run) -> None:
    """Nobody else can write in the driver's data directory, where it remembers who holds what."""
    run.prepared(run.claims.one())
    directory = run.driver.endpoint.parent
    if directory == run.site.registry_dir:
        raise NotApplicable("the service is on the registration socket, so the data directory is not known")
    open_to_all = [
        str(path) for path in _tree(directory) if path.lstat().st_mode & OTHERS_WRITE and not path.is_symlink()
    ]
    expect(not open_to_all, f"anybody may write {', '.join(open_to_all)}")


@LEVEL.must("SEC-003", CDI)
def keeps_others_out_of_its_specs(run: Run) -> None:
    """Only their owner can write CDI specs."""
    before = run.specs()
    run.with_cdi(run.prepared_one(run.claims.one()))
    written = run.new_specs(before)
    if not written:
        raise NotApplicable("preparing writes no spec of its own")
    modes = {path.name: path.stat().st_mode for path in written}
    wrong = [f"{name} has mode {_shown(mode)}" for name, mode in modes.items() if mode & GROUP_OR_OTHERS_WRITE]
    expect(not wrong, "; ".join(wrong))


@LEVEL.must("SEC-004", "CWE-22, path traversal", Need.ALONE)
def takes_no_name_for_a_path(run: Run) -> None:
    """A claim's name or UID such as `../x` neither removes nor makes a file outside of the driver's directories."""
    directory = run.cdi.directory
    with _canaries([directory, directory.parent, run.driver.endpoint.parent.parent]) as canaries:
        around = {folder: _names(folder) for folder in {path.parent for path in canaries}}
        stem = next(iter(canaries)).stem
        for ref in _climbing(run.site.namespace, stem):
            run.subject.prepare([ref])
            run.subject.unprepare([ref])
        gone = [str(path) for path in canaries if not path.exists()]
        expect(not gone, f"removed: {', '.join(gone)}")
        new = sorted(str(folder / name) for folder, names in around.items() for name in _names(folder) - names)
        expect(not new, f"made: {', '.join(new)}")


@LEVEL.must("SEC-005", "CWE-20, improper input validation; k8s.io/kubelet pkg/apis/dra/v1/api.proto, Claim")
def survives_odd_requests(run: Run) -> None:
    """Claims without name or UID, with very long ones, or many at once are answered, and the driver goes on."""
    namespace = run.site.namespace
    empty = ClaimRef("", "", "")
    many = [ClaimRef(namespace, f"odd-{index}", str(uuid.uuid4())) for index in range(MANY)]
    for refs in ([empty], [ClaimRef(namespace, LONG, LONG)], [ClaimRef(namespace, "a b\n%", "\x00")], many):
        for call in (run.subject.prepare, run.subject.unprepare):
            answer = call(refs)
            expect(answer.ok or not answer.status.startswith(("UNAVAILABLE", "DEADLINE")), answer.status)
    after = run.subject.prepare([])
    expect(after.ok, f"the next NodePrepareResources: {after.status}")


@LEVEL.should("SEC-006", KEP, Need.OWN_SERVER)
def asks_the_api_server_for_no_more_than_it_needs(run: Run) -> None:
    """A driver on a node reads claims and its node one by one, and writes ResourceSlices and device status only."""
    claim = run.claims.one()
    run.prepared(claim)
    run.unprepared(claim)
    assert run.site.requests
    more = sorted({_request(each) for each in run.site.requests() if not _allowed(each)})
    expect(not more, f"the driver also sent: {', '.join(more)}")


def _shown(mode: int) -> str:
    return stat.filemode(mode)


def _tree(directory: Path) -> Iterator[Path]:
    yield directory
    yield from directory.rglob("*")


@contextmanager
def _canaries(directories: Iterable[Path]) -> Iterator[dict[Path, None]]:
    stem = f"canary-{uuid.uuid4().hex[:8]}"
    paths = {directory / f"{stem}.json": None for directory in directories}
    try:
        for path in paths:
            path.write_text("{}")
        yield paths
    finally:
        for path in paths:
            path.unlink(missing_ok=True)


def _climbing(namespace: str, stem: str) -> Iterator[ClaimRef]:
    for text in (stem, f"../{stem}", f"../../{stem}", f"x/../../{stem}", f"../{stem}.json", f"../cdi/{stem}"):
        yield ClaimRef(namespace, "climbing", text)
        yield ClaimRef(namespace, text, str(uuid.uuid4()))
        yield ClaimRef(text, "climbing", str(uuid.uuid4()))


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _allowed(record: RequestRecord) -> bool:
    if not record.resource:
        return True  # discovery, version, health
    return record.verb in ALLOWED.get((record.resource, record.subresource), set())


def _request(record: RequestRecord) -> str:
    return f"{record.verb} {record.resource}{'/' if record.subresource else ''}{record.subresource}"
