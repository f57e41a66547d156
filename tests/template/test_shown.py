"""What pages show beside whole files and commands is so: parts of objects, settings, messages, repairs."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_sdk import HeldClaim, HeldDevice
from dra_sdk.loader import load_driver
from dra_sdk.model.config import config_class, wrong_fields
from dra_sdk.node.prepare.checkpoint import Checkpoint, encode
from tests.template.pages import ROOT, here
from tests.template.shown import block

pytestmark = pytest.mark.timeout(600)  # commands, on a machine with other work
DRIVERS = ("cpu", "memory", "gpu", "gpu-amd", "nic", "fpga_driver:FpgaDriver")
PARTS = [
    ("docs/driver.md", "config:"),
    ("drivers/cpu/PINNING.md", "devices:"),
    ("drivers/cpu/README.md", "requests:"),
    ("drivers/cpu/README.md", "config:"),
    ("drivers/plugin/README.md", "volumes:"),
    ("drivers/plugin/README.md", "requests:"),
]


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The configuration classes of the drivers that pages are about, by the name of the driver."""
    monkeypatch.syspath_prepend(str(ROOT / "docs/examples/fpga"))
    infos = [load_driver(name).info for name in DRIVERS]
    monkeypatch.delitem(sys.modules, "fpga_driver")
    return {info.name: info.configs for info in infos}


def completed(part: dict[str, Any]) -> dict[str, Any]:
    """An object with this part, and otherwise the least that it needs."""
    if "volumes" in part:
        spec = {"containers": [{"name": "main", "image": "plugin"}], **part}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "part"}, "spec": spec}
    devices = part.get("devices", part)
    if "requests" not in devices:
        names = devices["config"][0].get("requests", ["any"])
        devices["requests"] = [{"name": name, "exactly": {"deviceClassName": "any"}} for name in names]
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "part"}}
    return {**kind, "spec": {"devices": devices}}


@pytest.mark.parametrize(("page", "start"), PARTS, ids=[f"{page}-{start}" for page, start in PARTS])
def test_a_server_takes_this_part_and_the_driver_its_configuration(
    page: str, start: str, configs: dict[str, Any], tmp_path: Path
) -> None:
    whole = completed(yaml.safe_load(block(page, start)))
    (tmp_path / "part.yaml").write_text(yaml.safe_dump(whole))
    done = here("dra-sdk simulate --server-version 1.36 part.yaml", tmp_path)
    assert done.returncode in {0, 1}, done.stderr  # 2: it is not valid
    entries = whole["spec"].get("devices", {}).get("config", [])
    assert len(entries) == (start == "config:")
    for entry in entries:
        given = entry["opaque"]["parameters"]
        config = config_class(configs[entry["opaque"]["driver"]], given)
        assert config is not None, given
        assert wrong_fields(config, given) == []


def test_the_gpu_driver_takes_every_configuration_of_its_page(configs: dict[str, Any]) -> None:
    shown = list(yaml.safe_load_all(block("drivers/gpu/README.md", "kind: GpuConfig")))
    known = {each.kind: each for each in configs["gpu.nvidia.com"]}
    assert [each["kind"] for each in shown] == ["GpuConfig", "MigDeviceConfig", "VfioDeviceConfig"]
    assert {each["kind"]: wrong_fields(known[each["kind"]], each) for each in shown} == {each: [] for each in known}


def test_the_settings_file_of_the_page_is_read_and_mistakes_are_reported(tmp_path: Path) -> None:
    (tmp_path / "lamp_driver.py").write_text(block("docs/blocks/settings.md", "# lamp_driver.py"))
    for number in range(1, 4):
        (tmp_path / f"tree/sys/class/lamps/lamp-{number}").mkdir(parents=True)
    good = block("docs/blocks/settings.md", "logLevel: debug")
    (tmp_path / "good.yaml").write_text(good)
    (tmp_path / "lamps.yaml").write_text(good.replace("busySeconds: 5", "busySeconds: '60'"))
    discover = "dra-sdk discover lamp_driver:LampDriver --host-root tree --config"
    found = here(f"{discover} good.yaml", tmp_path)
    assert re.findall(r"lamp-\d", found.stdout) == ["lamp-3"], found.stderr
    unknown, wrong = block("docs/blocks/settings.md", "dra-sdk: unknown environment variable").splitlines()
    wrong = wrong.replace("/etc/lamps.yaml", str(tmp_path / "lamps.yaml"))
    assert here(f"DRA_LAMP_HIED=lamp-1 {discover} good.yaml", tmp_path).stderr.splitlines() == [unknown]
    assert here(f"{discover} lamps.yaml", tmp_path).stderr.splitlines() == [wrong]


def test_the_simulator_shows_a_problem_at_its_place(tmp_path: Path) -> None:
    selector = {"cel": {"expression": 'device.attributes["x"].foo = 3'}}
    exactly = {"deviceClassName": "gpu", "selectors": [selector]}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "train"}, "spec": spec}
    text = yaml.safe_dump(claim, sort_keys=False)
    line = next(number for number, each in enumerate(text.splitlines(), 1) if "expression" in each)
    (tmp_path / "claims.yaml").write_text(text)
    done = here("dra-sdk simulate claims.yaml", tmp_path)
    expected = block("docs/simulate.md", "claims.yaml:12:").replace("claims.yaml:12:", f"claims.yaml:{line}:")
    assert (done.returncode, done.stderr) == (2, expected)


def test_a_kind_that_the_simulator_does_not_know_is_described_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "rows.yaml").write_text(block("docs/simulate.md", "# rows.yaml"))
    cars = [
        {"id": name, "seats": seats, "pod": {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}}
        for name, seats in (("first", 2), ("dining", 1))
    ]
    train = {"apiVersion": "example.com/v1", "kind": "Train", "metadata": {"name": "ice"}, "spec": {"cars": cars}}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}
    (tmp_path / "train.yaml").write_text(yaml.safe_dump_all([train, node]))
    done = here("dra-sdk simulate train.yaml --workloads rows.yaml", tmp_path)
    pods = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert (done.returncode, pods) == (0, ["ice-first-0", "ice-first-1", "ice-dining-0"])


def test_the_python_of_the_page_about_explanations_runs(tmp_path: Path) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    (tmp_path / "why.py").write_text(block("docs/explain.md", "from pathlib import Path"))
    done = here("python why.py", tmp_path)
    assert done.returncode == 0, done.stderr
    assert '1. request lunch, selector 0: change "pineapple" to "basil"' in done.stdout


def test_a_damaged_file_is_shown_repaired_and_forgotten_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    show, as_json, repair, forget = block("docs/state.md", "dra-sdk state").splitlines()
    uid = repair.split()[-1]
    monkeypatch.setenv("DRA_SDK_KUBELET_DIR", str(tmp_path / "kubelet"))
    monkeypatch.setenv("DRA_SDK_CDI_DIR", str(tmp_path / "cdi"))
    claims = tmp_path / "kubelet/plugins/gpu.nvidia.com/claims"
    claims.mkdir(parents=True)
    claims.chmod(0o700)
    claims.parent.chmod(0o750)
    (tmp_path / "cdi").mkdir()
    held = (HeldDevice("gpu", "node-1", "gpu-0"),)
    file = claims / f"{uid}.json"
    file.write_bytes(encode(Checkpoint(HeldClaim("default", "train", uid, held, complete=False), "boot-1"))[:-9])
    file.chmod(0o600)
    done = here(show.partition("  #")[0], tmp_path)
    assert (done.returncode, uid in done.stdout) == (1, True), done.stderr
    assert json.loads(here(as_json, tmp_path).stdout)
    assert here(repair, tmp_path).returncode == 0
    assert here(show.partition("  #")[0], tmp_path).returncode == 0
    assert here(forget, tmp_path).returncode == 0
    assert not file.exists()
