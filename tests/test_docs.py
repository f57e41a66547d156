"""What the documentation says is so: links, manifests, commands, permissions, metrics, the driver of its guide."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_sdk import Claim, Condition, Device, DeviceStatus, DriverInfo, Node, PreparedDevice
from dra_sdk.cli.main import make_parser
from dra_sdk.hookspecs import DriverHooks
from dra_sdk.loader import Driver, load_driver
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.testing.sysfs import FakePci, regular_machine
from dra_sdk.testing.waiting import wait
from dra_sdk.tools.manifests import Chart
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.bench.conformance import RUNS
from tests.cli.commands import Run, runner
from tests.embedded import settings_for
from tests.strict import type_errors

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "drivers").glob("*/*.md")])
MANIFESTS = sorted((ROOT / "docs").rglob("*.yaml"))
EXAMPLES = ROOT / "docs/examples"
NAMES = {path: str(path.relative_to(ROOT)) for path in (*PAGES, *MANIFESTS)}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def objects(path: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = page.read_text()
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = link.partition("#")
        if not file.startswith("http"):
            target = page.parent / file if file else page
            assert target.exists(), link
            assert not anchor or anchor in anchors(target), link


def anchors(page: Path) -> set[str]:
    """As they are made of headings where the pages are shown."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", MANIFESTS, ids=NAMES.get)
def test_a_server_would_take_every_manifest(path: Path, run: Run) -> None:
    done = run("validate", path)
    assert (done.status, done.out) == (0, "")


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_a_server_would_take_every_object_of_a_page(page: Path, run: Run, tmp_path: Path) -> None:
    for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL):
        if "resource.k8s.io" in block:
            (tmp_path / "block.yaml").write_text(block)
            done = run("validate", tmp_path / "block.yaml")
            assert (done.status, done.out) == (0, ""), block


@pytest.fixture
def recording() -> str:
    """The page about archives of nodes."""
    return (ROOT / "docs/blocks/recording.md").read_text()


@pytest.mark.timeout(300)  # the demo, and all of this machine's /sys
def test_the_commands_that_record_a_node_run_in_their_order(
    recording: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    monkeypatch.chdir(tmp_path)
    (block, *_) = re.findall(r"```sh\n(.*?)```", recording, re.DOTALL)
    lines = [shlex.split(line.partition("  #")[0]) for line in block.splitlines()]
    assert [line[:2] for line in lines] == [["dra-sdk", each] for each in ("capture", "discover", "simulate", "demo")]
    for _, *words in lines:
        done = run(*words)
        placed = {0, 1} if words[0] == "simulate" else {0}  # this machine may have too few CPUs for the example
        assert done.status in placed, done.err
    assert "cpudev" in run("discover", "cpu", "--host-root", "node.tar.gz").out


def commands(page: Path) -> Iterator[list[str]]:
    """The calls of `dra-sdk` in the page's blocks, and those in its text that have all their arguments."""
    text = page.read_text()
    for block in re.findall(r"```(?:console|sh)?\n(.*?)```", text, re.DOTALL):
        for line in re.findall(r"^(?:\$ )?(?:[A-Z_]+=\S+ )*dra-sdk (.*)$", block, re.MULTILINE):
            yield shlex.split(re.split(r"  #| [|>] ", line)[0])  # without what the shell does with the output


@pytest.mark.parametrize("page", PAGES, ids=NAMES.get)
def test_every_command_of_a_page_is_one(page: Path) -> None:
    for words in commands(page):
        if "…" not in words:
            assert make_parser(words).parse_args(words)  # ends the process with the reason where it is wrong


def test_commands_are_found() -> None:
    assert sum(len(list(commands(page))) for page in PAGES) > 10


def rules(name: str, **fields: Any) -> set[tuple[str, str]]:
    """The permissions of a ClusterRole of the chart; `fields` are those of the CPU driver's entry."""
    made = [each.object for each in Chart().render({"drivers": {"cpu": {"enabled": True, **fields}}})]
    (role,) = [each for each in made if each["kind"] == "ClusterRole" and each["metadata"]["name"] == name]
    return {(verb, resource) for rule in role["rules"] for verb in rule["verbs"] for resource in rule["resources"]}


@pytest.fixture
def metrics_and_requests() -> tuple[str, set[tuple[str, str]]]:
    """Of a CPU driver that published, prepared and unprepared: its metrics, and what it asked of the API server."""
    with EmbeddedCluster() as cluster:
        settings = settings_for(cluster, http_address="127.0.0.1:0")
        with DriverProcess(load_driver("cpu"), settings) as process:
            cluster.kubelet.wait_for_driver("dra.cpu")
            cluster.wait_slices("dra.cpu")
            wait(lambda: process.publisher.slices.synced)
            cluster.create_class("cpus")
            cluster.create_claim("one", {"cpu": "cpus"})
            cluster.create_pod("user", ["one"])
            cluster.schedule()
            cluster.run_pod("user")
            cluster.stop_pod("user")
            text = process.metrics.text().decode()
            process.publisher.slices.publish([])
            wait(lambda: not cluster.api.list("resourceslices"))
        # A request is in the log when it is answered, which is after its effect; the driver has all answers by now.
        return text, {
            (request.verb, f"{request.plural}/{request.subresource}".rstrip("/"))
            for request in (record.request for record in cluster.server.log.records())
        }


def test_the_role_has_what_a_driver_asks_for_and_the_page_has_the_metrics(
    metrics_and_requests: tuple[str, set[tuple[str, str]]],
) -> None:
    text, requests = metrics_and_requests
    assert ("watch", "resourceslices") in requests
    assert ("delete", "resourceslices") in requests
    assert requests <= rules("dra-cpu")
    page = (ROOT / "docs/install.md").read_text()
    for verb, resource in rules("dra-cpu"):
        assert re.search(rf"^\| .*`{verb}`.* {resource} \|", page, re.MULTILINE), (verb, resource)
    made = {name for name in re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE) if not name.endswith("_created")}
    made = {name for name in made if not name.startswith("process_")}
    own = {name for name in made if not name.startswith("dra_sdk_")}
    assert metrics_in(page.partition("## When something")[0]) >= made - own
    assert metrics_in((ROOT / "drivers/cpu/README.md").read_text()) >= own


def metrics_in(page: str) -> set[str]:
    """The metrics that a page names."""
    return set(re.findall(r"`(dra_\w+?)(?:\{[\w,]+\})?`(?=[,| ])", page))


class StatusDriver:
    """Reports a status of each device it prepares."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("lamps.example.com")

    def dra_discover(self, node: Node) -> list[Device]:
        return [Device("lamp-0")]

    def dra_prepare(self, claim: Claim[None]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            yield device.prepared(status=DeviceStatus(conditions=[Condition(type="Ready", status=True, reason="On")]))


def test_the_role_for_statuses_has_what_writing_them_takes_and_no_more() -> None:
    with EmbeddedCluster() as cluster:
        with DriverProcess(Driver.of(StatusDriver()), settings_for(cluster)):
            cluster.kubelet.wait_for_driver("lamps.example.com")
            cluster.wait_slices("lamps.example.com")
            cluster.create_class("lamps")
            cluster.create_claim("one", {"lamp": "lamps"})
            cluster.create_pod("user", ["one"])
            cluster.schedule()
            cluster.run_pod("user")
            (entry,) = wait(lambda: cluster.api.get("resourceclaims", "one", "default")["status"].get("devices"))
            cluster.stop_pod("user")
            wait(lambda: not cluster.api.get("resourceclaims", "one", "default")["status"].get("devices"))
        # A request is in the log when it is answered, which is after its effect; the driver has all answers by now.
        requests = [record.request for record in cluster.server.log.records()]
        verbs = {request.verb for request in requests if request.subresource == "status"}
    assert entry["conditions"][0]["type"] == "Ready"
    driver = {f"associated-node:{verb}" for verb in verbs}  # of the permission that 1.36 and later ask for
    added = rules("dra-cpu", deviceStatus=True) - rules("dra-cpu")
    assert added == {(verb, "resourceclaims/status") for verb in verbs} | {
        (verb, "resourceclaims/driver") for verb in driver
    }


@pytest.mark.timeout(600)  # mypy reads all of dra_sdk
@pytest.mark.parametrize("name", ["cores", "fpga", "sriov"])
def test_the_drivers_of_the_guides_are_strictly_typed(name: str) -> None:
    file = EXAMPLES / name / f"{name}_driver.py"
    assert type_errors(file) == ""


def test_the_driver_of_the_guide_lives_through_the_demo(run: Run, tmp_path: Path) -> None:
    card = tmp_path / "sys/class/fpga/card0"
    card.mkdir(parents=True)
    for name, content in (("model", "v80"), ("regions", "1"), ("health", "ok"), ("region0", "blank")):
        (card / name).write_text(content)
    boot_id = tmp_path / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True)
    boot_id.write_text("any text")
    found = run("discover", "fpga_driver:FpgaDriver", "--host-root", tmp_path)
    assert [row[1] for row in found.cells] == ["card0", "card0-region0", "card0-dma"]
    told = run("demo", "fpga_driver:FpgaDriver", "--host-root", tmp_path)
    missing = f"[Errno 2] No such file or directory: '{tmp_path}/dev/fpga0'"
    assert told.err == f"dra-sdk: CDI device '/dev/device': cannot stat host device '/dev/fpga0': {missing}\n"


def test_the_sriov_driver_is_short_and_lives_through_the_demo(run: Run, tmp_path: Path) -> None:
    assert len((EXAMPLES / "sriov/sriov_driver.py").read_text().splitlines()) < 120
    vf = FakePci(address="0000:3b:00.1", class_code=0x120000, driver="vfio-pci", iommu_group=21)
    card = replace(vf, address="0000:3b:00.0", driver="accel", iommu_group=20, total_vfs=4)
    host = replace(regular_machine(), pci=(card, replace(vf, physical_function=card.address))).write(tmp_path)
    for path in ("proc/sys/kernel/random/boot_id", f"sys/bus/pci/devices/{card.address}/profiles/{vf.address}"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text("throughput")
    found = run("discover", "sriov_driver:SriovDriver", "--host-root", tmp_path)
    assert found.cells[0][1] == "vf-0000-3b-00-1"
    told = run("demo", "sriov_driver:SriovDriver", "--host-root", tmp_path)
    assert "device node /dev/vfio/21 is missing on the node" in told.err
    (host.dev / "vfio").mkdir(parents=True)
    for name in ("21", "vfio"):
        os.mkfifo(host.dev / "vfio" / name)  # a device node that needs no privilege to make
    done = run("demo", "sriov_driver:SriovDriver", "--host-root", tmp_path)
    assert (done.status, done.err) == (0, "")


BUILDING_BLOCKS = sorted((ROOT / "docs/blocks").glob("*.md"))


def test_a_page_of_building_blocks_is_read_in_a_few_minutes() -> None:
    lines = {page.name: len(page.read_text().splitlines()) for page in BUILDING_BLOCKS}
    assert len(lines) > 10
    assert {name: count for name, count in lines.items() if count > 120} == {}


@pytest.fixture
def blocks(run: Run, tmp_path: Path) -> dict[str, Path]:
    """The files of the pages of building blocks by name, in one directory, with an archive of a node."""
    replace(regular_machine(sockets=2), pci=()).write(tmp_path / "node")
    assert run("capture", "-o", str(tmp_path / "node.tar.gz"), "--host-root", str(tmp_path / "node")).status == 0
    found = {}
    text = "".join(page.read_text() for page in BUILDING_BLOCKS)
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        first, _, code = block.partition("\n")
        name = first.removeprefix("# ")
        assert re.fullmatch(r"\w+\.py", name), f"a block of docs/blocks begins with {first!r}, want `# name.py`"
        assert name not in found, f"docs/blocks has {name} twice"
        found[name] = tmp_path / name
        found[name].write_text(code)
    return found


@pytest.mark.usefixtures("bare_pytest")
@pytest.mark.timeout(600)
def test_the_examples_of_the_building_blocks_run(blocks: dict[str, Path], tmp_path: Path) -> None:
    tests = {name: path for name, path in blocks.items() if name.startswith("test_")}
    assert tests
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *map(str, tests.values())]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    imported = {
        f"{name}.py"
        for path in tests.values()
        for name in re.findall(r"^from (\w+) import", path.read_text(), re.MULTILINE)
    }
    assert blocks.keys() - tests.keys() <= imported, "a file of docs/blocks that none of its tests imports"


@pytest.mark.timeout(600)  # mypy reads all of dra_sdk
def test_the_examples_of_the_building_blocks_are_strictly_typed(blocks: dict[str, Path]) -> None:
    assert type_errors(*(path for name, path in blocks.items() if not name.startswith("test_"))) == ""


def test_the_guide_has_every_hook_with_its_arguments() -> None:
    page = (ROOT / "docs/driver.md").read_text().partition("## The hooks")[2]
    arguments = {
        name: [argument for argument in inspect.signature(hook).parameters if argument != "self"]
        for name, hook in vars(DriverHooks).items()
        if name.startswith("dra_")
    }
    shown = re.findall(r"^\| `(dra_\w+)\((.*?)\)` \| [^|]+ \| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)
    assert {name: [word for word in words.split(", ") if word] for name, words in shown} == arguments


def test_the_driver_of_cores_lives_through_the_demo_with_a_container_runtime(run: Run, tmp_path: Path) -> None:
    for name, content in (("sys/devices/system/cpu/online", "0-3"), ("proc/sys/kernel/random/boot_id", "any text")):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(content)
    shown = run("demo", "cores_driver:CoresDriver", "--host-root", tmp_path)
    assert (shown.status, shown.err) == (0, "")
    assert "DRA_CLAIM_cores.example.com_" in shown.out


def test_the_page_with_the_results_of_drivers_has_their_commands_and_rows() -> None:
    """`python -m tests.bench.conformance` runs the same commands, and prints the rows."""
    page = (ROOT / "docs/conformance-results.md").read_text()
    results, _, rest = page.partition("## Commands\n")
    assert [line for block in re.findall(r"```sh\n(.*?)```", rest, re.DOTALL) for line in block.splitlines()] == [
        run.line for run in RUNS.values()
    ]
    for name in RUNS:
        assert re.search(rf"^\| `{name}` \| .+ \| \d+/\d+ \| \d+/\d+ \| .+ \|$", results, re.MULTILINE), name
