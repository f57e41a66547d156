from __future__ import annotations

import json
from pathlib import Path

import pytest

from dra_sdk.cli.main import main
from dra_sdk.cli.picture import write_picture
from dra_sdk.errors import SettingsError
from dra_sdk.testing.sysfs import regular_machine
from dra_sdk.tools.scheduling.cluster import schedule
from tests.cli.cards import make_cards
from tests.tools.scheduling.clusters import GPU, claim, cluster, exactly, gpus, pod
from tests.tools.scheduling.explain import situations
from tests.tools.scheduling.picture.html_page import Page


def drawn(path: Path, *objects: object) -> str:
    write_picture(schedule(cluster(*objects)), path)  # type: ignore[arg-type]
    return Page(path.read_text()).text


def test_a_picture_says_why_a_claim_waits_and_what_would_help(tmp_path: Path):
    write_picture(schedule(situations.memory()), tmp_path / "a.html")
    shown = Page((tmp_path / "a.html").read_text()).text
    assert (
        "claim c on any of 7 nodes: request gpu: none of 4 devices passes selector 0 (memory is 40Gi) "
        "Would help: request gpu, selector 0: 40Gi instead of 80Gi"
    ) in shown


def test_pods_with_the_same_reason_are_grouped(tmp_path: Path):
    waiting = [each for name in "ab" for each in (claim(name, exactly("gpu", GPU, count=3)), pod(name, name))]
    shown = drawn(tmp_path / "a.html", gpus("n1"), waiting)
    assert "pod a, pod b on n1: request gpu: 2 of 2 of class gpu.nvidia.com, 3 needed" in shown


def test_a_pod_without_its_claim_has_the_schedulers_reason(tmp_path: Path):
    waiting = pod("p", "missing")
    assert "there is no ResourceClaim missing in namespace default" in drawn(tmp_path / "a.html", gpus("n1"), waiting)


def test_after_twenty_explanations_the_schedulers_reason_is_shown(tmp_path: Path):
    waiting = [claim(f"c{index:02}", exactly("gpu", GPU, count=3)) for index in range(22)]
    shown = drawn(tmp_path / "a.html", gpus("n1"), waiting)
    assert "claim c20, claim c21 0 of 1 nodes: no devices for claim" in shown or "claim c20 0 of 1 nodes" in shown


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path):
    with pytest.raises(SettingsError, match=r"cannot write .*: No such file or directory"):
        write_picture(schedule(cluster()), tmp_path / "no" / "a.html")


CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "cpus"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "dra.cpu"'}}]},
}


def cpu_claim(name: str, amount: int) -> dict[str, object]:
    request = {"deviceClassName": "cpus", "capacity": {"requests": {"dra.cpu/cpu": str(amount)}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "cpu", "exactly": request}]}},
    }


def test_a_driver_draws_the_planned_claims_of_each_of_its_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    regular_machine(cores=4).write(tmp_path / "host")
    objects = tmp_path / "claims.json"
    items = [CLASS, cpu_claim("big", 5), cpu_claim("small", 2), cpu_claim("other", 4)]
    objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    flags = ["--driver", "cpu", "--fixture", str(tmp_path / "host"), "--node", "n1", "--node", "n2"]
    assert main(["simulate", *flags, str(objects), "--picture", str(tmp_path / "a.html")]) == 0
    text = (tmp_path / "a.html").read_text()
    first, second = [part.partition("</pre>")[0].splitlines() for part in text.split('class="driver-picture">')[1:]]
    assert [line for line in first if line] == [
        "SOCKET  NUMA  L3  CPUS  CORES",
        "0       0     0   0-7   .A AA AA BB",
        "A  default/big    1-2,4-6",
        "B  default/small  3,7",
        ".  shared by all other containers: 0",
    ]
    assert "A  default/other  1-2,5-6" in second
    assert "note: the picture" not in capsys.readouterr().err


def test_a_driver_that_cannot_draw_planned_claims_is_left_out_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    flags = ["--driver", "tests.cli.cards:Drawing", "--fixture", str(make_cards(tmp_path / "host"))]
    assert main(["simulate", *flags, "--picture", str(tmp_path / "a.html")]) == 0
    assert "<pre" not in (tmp_path / "a.html").read_text()
    assert "note: the picture has none of driver tests.cli.cards:Drawing: " in capsys.readouterr().err
