"""Who can reach the driver and its files, and what names in a request can do."""

from __future__ import annotations

import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dra_sdk.model.claim import ClaimRef
from dra_sdk.tools.conformance.check import Level, Need
from dra_sdk.tools.conformance.outcomes import NotApplicableError, expect, expect_ok
from dra_sdk.tools.conformance.run import Run, placed_files
from dra_sdk.tools.simulator.request import RequestRecord

SECURITY: Final = Level("security", "Sockets, files and names")

_UNIX: Final = "unix(7): connecting needs write permission on the socket"
_CDI: Final = "Container Device Interface SPEC.md, hooks: a spec names programs that run as root"
_KEP: Final = "KEP-4381, Security"
_PROTO: Final = "k8s.io/kubelet pkg/apis/dra/v1/api.proto, Claim"
WRITABLE_BY_OTHERS: Final = stat.S_IWOTH
WRITABLE_BY_GROUP_OR_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
LONG_NAME: Final = "x" * 5_000
MANY_CLAIMS: Final = 64
ALLOWED_REQUESTS: Final = {
    ("nodes", ""): {"get"},
    ("resourceclaims", ""): {"get"},
    ("resourceclaims", "status"): {"get", "patch", "update"},
    ("resourceslices", ""): {"get", "list", "watch", "create", "update", "patch", "delete"},
}
"""What KEP-4381 grants a driver on a node, and device status (KEP-4817), by resource and subresource."""


@SECURITY.must("SEC-001", _UNIX)
def sockets_are_private(run: Run) -> None:
    """Only their owner can connect to the sockets: anybody who can call the driver can take devices from pods."""
    for path in dict.fromkeys([run.instance.registration_socket, run.instance.service_socket]):
        mode = path.stat().st_mode
        expect(not mode & WRITABLE_BY_GROUP_OR_OTHERS, f"{path.name} has mode {stat.filemode(mode)}")


@SECURITY.must("SEC-002", "Kubernetes volumes, hostPath: files on the host outlive the driver's pod")
def data_directory_is_private(run: Run) -> None:
    """Nobody else can write to the driver's data directory, which records the claims that hold devices."""
    run.prepare(run.claims.create_one())
    directory = run.instance.service_socket.parent
    if directory == run.environment.registry_dir:
        raise NotApplicableError("the service uses the registration socket, so the data directory is not known")
    paths = [path for path in (directory, *directory.rglob("*")) if not path.is_symlink()]
    writable = [str(path) for path in paths if path.lstat().st_mode & WRITABLE_BY_OTHERS]
    expect(not writable, f"everybody can write to {', '.join(writable)}")


@SECURITY.must("SEC-003", _CDI)
def cdi_specs_are_private(run: Run) -> None:
    """Only their owner can write to the CDI specs."""
    before = run.spec_files()
    run.cdi_ids(run.prepare_one(run.claims.create_one()))
    modes = {path.name: path.stat().st_mode for path in run.new_spec_files(before)}
    wrong = [
        f"{name} has mode {stat.filemode(mode)}" for name, mode in modes.items() if mode & WRITABLE_BY_GROUP_OR_OTHERS
    ]
    expect(not wrong, "; ".join(wrong))


@SECURITY.must("SEC-004", "CWE-22, path traversal", Need.DISRUPTION)
def rejects_path_traversal(run: Run) -> None:
    """A claim's name or UID such as `../x` neither removes nor creates a file outside of the driver's directories."""
    directory = run.cdi.directory
    folders = directory, directory.parent, run.instance.service_socket.parent.parent
    stem = f"canary-{uuid.uuid4().hex[:8]}"
    canaries = {folder / f"{stem}.json": b"{}" for folder in folders}
    with placed_files(canaries):
        before = {folder: _names(folder) for folder in folders}
        for ref in _traversals(run.environment.namespace, stem):
            run.driver.prepare([ref])
            run.driver.unprepare([ref])
        removed = [str(path) for path in canaries if not path.exists()]
        expect(not removed, f"removed: {', '.join(removed)}")
        created = sorted(str(folder / name) for folder, names in before.items() for name in _names(folder) - names)
        expect(not created, f"created: {', '.join(created)}")


@SECURITY.must("SEC-005", f"CWE-20, improper input validation; {_PROTO}")
def survives_invalid_requests(run: Run) -> None:
    """Calls with claims without name or UID, with very long ones, or with many claims are answered."""
    namespace = run.environment.namespace
    empty = ClaimRef("", "", "")
    many = [ClaimRef(namespace, f"odd-{index}", str(uuid.uuid4())) for index in range(MANY_CLAIMS)]
    for refs in ([empty], [ClaimRef(namespace, LONG_NAME, LONG_NAME)], [ClaimRef(namespace, "a b\n%", "\x00")], many):
        for call in (run.driver.prepare, run.driver.unprepare):
            answer = call(refs)
            expect(answer.ok or not answer.status.startswith(("UNAVAILABLE", "DEADLINE")), answer.status)
    expect_ok(run.driver.prepare([]), "the next NodePrepareResources")


@SECURITY.should("SEC-006", _KEP, Need.EMBEDDED_SERVER)
def sends_only_necessary_requests(run: Run) -> None:
    """A driver on a node reads single claims and its node, and writes only ResourceSlices and device status."""
    claim = run.prepared()
    run.unprepare(claim)
    assert run.environment.requests
    extra = sorted({_request(request) for request in run.environment.requests() if not _allowed(request)})
    expect(not extra, f"the driver also sent: {', '.join(extra)}")


def _traversals(namespace: str, stem: str) -> Iterator[ClaimRef]:
    """Yield claims whose name, UID or namespace is a path to a canary."""
    for text in (stem, f"../{stem}", f"../../{stem}", f"x/../../{stem}", f"../{stem}.json", f"../cdi/{stem}"):
        yield ClaimRef(namespace, "traversal", text)
        yield ClaimRef(namespace, text, str(uuid.uuid4()))
        yield ClaimRef(text, "traversal", str(uuid.uuid4()))


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _allowed(record: RequestRecord) -> bool:
    request = record.request
    if not request.resource:
        return True  # discovery, version, health
    return request.verb in ALLOWED_REQUESTS.get((request.plural, request.subresource), set())


def _request(record: RequestRecord) -> str:
    request = record.request
    return f"{request.verb} {request.plural}{'/' if request.subresource else ''}{request.subresource}"
