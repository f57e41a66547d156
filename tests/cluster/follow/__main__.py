"""`python -m tests.cluster.follow`: what a Kubernetes release has that this package does not know.

The release is KUBE_VERSION. It is built if it is not in the cache. The parts are

gates        the feature gates of the API server, and which are on by default
fields       kinds and fields of resource.k8s.io
functions    functions and macros of CEL in selectors
vectors      the tests of the upstream tables
objects      changed objects, accepted or refused, and what is stored; with default gates and with all
pods         pods of random clusters, by kube-scheduler and by this package; with default gates and with all
kubelet      the drivers on a real kubelet; with default gates and with all

Exit status: 0 nothing differs, 1 something does, 2 a part could not be done.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from dra_sdk.cel.library import functions as our_functions
from dra_sdk.wire.profile import ServerProfile
from tests.cluster.differential.api import Requests
from tests.cluster.follow import api_facts, cel_functions, comparisons, suites
from tests.cluster.follow.report import Difference, Part, Report
from tests.cluster.harness.build import ensure_kubernetes, run_go
from tests.cluster.harness.cache import DEFAULT_VERSION, Cache, Version
from tests.cluster.harness.control_plane import ControlPlane, ControlPlaneSettings, control_plane
from tests.cluster.harness.debian import find_go
from tests.cluster.harness.errors import HarnessError
from tests.cluster.harness.progress import Progress

Work = Callable[[], tuple[str, list[Difference]]]
PARTS: Final = ("gates", "fields", "functions", "vectors", "objects", "pods", "kubelet")
_FLAGS: Final = {"apiserver": ["--disable-admission-plugins=ServiceAccount"]}


def main(arguments: list[str] | None = None) -> int:
    """Compares, prints the report, and writes it as JSON; returns the exit status."""
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m tests.cluster.follow", description=__doc__, formatter_class=shape)
    parser.add_argument("--only", nargs="*", choices=PARTS, default=PARTS, help="some of the parts")
    parser.add_argument(
        "--cases", type=int, default=1000, help="how many pods and objects to draw, each (default 1000)"
    )
    parser.add_argument("--seed", default=str(time.time_ns()), help="of the cases")
    parser.add_argument("--json", type=Path, help="write the report here (default: build/follow/<release>.json)")
    chosen = parser.parse_args(arguments)
    try:
        version = Version.parse(os.environ.get("KUBE_VERSION") or DEFAULT_VERSION)
        ensure_kubernetes(Cache.from_env(), version, Progress())
    except HarnessError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    report = Report(str(version))
    for name, work in parts(version, chosen):
        report.parts.append(_done(name, work))
    target = chosen.json or Path("build") / "follow" / f"{version}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(report.json())
    print(f"seed {chosen.seed}; compared with this package's Kubernetes {api_facts.known(version.minor)}; {target}")
    print(report.text())
    return report.status


def parts(version: Version, chosen: argparse.Namespace) -> Iterator[tuple[str, Work]]:
    """Yields the parts that are chosen, in their order."""
    facts: dict[str, Work] = {
        "gates": lambda: _gates(version),
        "fields": lambda: _fields(version),
        "functions": lambda: _functions(version),
        "vectors": suites.vectors,
    }
    yield from ((name, facts[name]) for name in facts if name in chosen.only)
    for gates in comparisons.GATES:
        for name, compare in (("objects", comparisons.objects), ("pods", comparisons.pods)):
            if name in chosen.only:
                yield f"{name}, {gates} gates", _compared(compare, version, gates, chosen)
        if "kubelet" in chosen.only:
            yield f"kubelet, {gates} gates", _on_kubelet(version, gates)


def _done(name: str, work: Work) -> Part:
    part, began = Part(name), time.monotonic()
    try:
        part.done, part.differences = work()
    except HarnessError as error:
        part.error = str(error)
    part.seconds = time.monotonic() - began
    print(f"{name}: {part.error or part.done}; {len(part.differences)} differ", file=sys.stderr, flush=True)
    return part


def _compared(
    compare: Callable[[str, comparisons.Gates, str, int], comparisons.Compared],
    version: Version,
    gates: comparisons.Gates,
    chosen: argparse.Namespace,
) -> Work:
    def work() -> tuple[str, list[Difference]]:
        compared = compare(str(version), gates, chosen.seed, chosen.cases)
        return compared.done, compared.differences

    return work


def _on_kubelet(version: Version, gates: comparisons.Gates) -> Work:
    return lambda: suites.kubelet(str(version), alpha=gates == "all")


@contextmanager
def _server(version: Version, gates: dict[str, bool]) -> Iterator[ControlPlane]:
    with tempfile.TemporaryDirectory(prefix="follow-") as folder:
        settings = ControlPlaneSettings(str(version), gates, flags=_FLAGS)
        with control_plane("follow", Path(folder), settings, Progress()) as plane:
            yield plane


def _gates(version: Version) -> tuple[str, list[Difference]]:
    with _server(version, {}) as plane:
        found = api_facts.read_gates(plane.api)
    return f"{len(found)} feature gates", list(api_facts.compare_gates(found, version))


def _fields(version: Version) -> tuple[str, list[Difference]]:
    with _server(version, {"AllAlpha": True, "AllBeta": True}) as plane:
        documents = api_facts.read_documents(plane.api)
    server = api_facts.server_fields(documents)
    count = sum(map(len, server.values()))
    done = f"{count} fields of {len(server)} kinds in {', '.join(sorted(documents))}"
    return done, list(api_facts.compare_fields(server, api_facts.our_fields(version.minor)))


def _functions(version: Version) -> tuple[str, list[Difference]]:
    source = Cache.from_env().source(version)
    folders = cel_functions.module_folders(
        lambda module: json.loads(run_go(str(find_go()), source, "list", "-m", "-json", module))
    )
    found = cel_functions.candidates(cel_functions.read_sources(folders))
    lists = {"DRAListTypeAttributes": True}
    profile = ServerProfile.of(str(version), lists)
    known = [name for name in our_functions(since_1_37=True, includes=True) if name.replace(".", "_").isidentifier()]
    with _server(version, {"AllBeta": True, **lists}) as plane:
        requests = Requests(plane.api)
        try:
            server, ours = cel_functions.judge_of_server(requests), cel_functions.our_judge(profile)
            differences = list(cel_functions.compare(found, server, ours, known))
        finally:
            requests.close()
    return f"{len(found.functions)} names and {len(found.macros)} macros of the sources", differences


if __name__ == "__main__":
    sys.exit(main())
