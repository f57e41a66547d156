from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk.cli.simulate import write_picture
from dra_sdk.errors import SettingsError
from dra_sdk.tools.scheduling.cluster import schedule
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
