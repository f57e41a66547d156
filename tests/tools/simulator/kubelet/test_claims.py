from __future__ import annotations

import json
import zlib
from dataclasses import replace
from pathlib import Path

import pytest

from dra_sdk.model.claim import ClaimRef
from dra_sdk.tools.simulator.kubelet.claims import ClaimCache, ClaimInfo, load
from dra_sdk.tools.simulator.kubelet.emulator import KubeletEmulator
from dra_sdk.tools.simulator.kubelet.records import AnsweredDevice, CheckpointError, StoppedError
from dra_sdk.tools.simulator.local import LocalClient

REF = ClaimRef("default", "one", "uid-1")
DEVICE = AnsweredDevice("d", "pool", "dev", ("r",), ("v/c=a",), "share")


def test_saved_claims_are_read_again_but_not_as_prepared(tmp_path: Path) -> None:
    path = tmp_path / "dra_manager_state"
    cache = ClaimCache(path)
    (info,) = cache.add_pod("pod-1", [ClaimInfo(REF, {"d": ()})])
    with cache.changing():
        info.drivers["d"] = (DEVICE,)
        info.prepared = True
    (read,) = ClaimCache(path).all()
    assert read == ClaimInfo(REF, {"d": (DEVICE,)}, {"pod-1"}, prepared=False)
    cache.delete([info])
    assert load(path) == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["dra_manager_state"]


def test_the_file_has_the_kubelets_form(tmp_path: Path) -> None:
    path = tmp_path / "dra_manager_state"
    ClaimCache(path).add_pod("pod-1", [ClaimInfo(REF, {"d": (DEVICE,)})])
    checkpoint = json.loads(path.read_text())
    assert set(checkpoint) == {"Data", "Checksum"}
    data = json.loads(checkpoint["Data"])
    assert (data["kind"], data["apiVersion"]) == ("DRACheckpoint", "checkpoint.dra.kubelet.k8s.io/v1")
    assert data["ClaimInfoStateList"] == [
        {
            "ClaimUID": "uid-1",
            "ClaimName": "one",
            "Namespace": "default",
            "PodUIDs": {"pod-1": {}},
            "DriverState": {
                "d": {
                    "Devices": [
                        {
                            "PoolName": "pool",
                            "DeviceName": "dev",
                            "ShareID": "share",
                            "RequestNames": ["r"],
                            "CDIDeviceIDs": ["v/c=a"],
                        }
                    ]
                }
            },
        }
    ]


def test_a_file_of_1_34_has_no_shares(tmp_path: Path) -> None:
    path = tmp_path / "dra_manager_state"
    ClaimCache(path).add_pod("pod-1", [ClaimInfo(REF, {"d": (DEVICE,)})])
    data = json.loads(path.read_text())["Data"].replace('"ShareID": "share", ', "")
    path.write_text(json.dumps({"Data": data, "Checksum": zlib.crc32(data.encode())}))
    (read,) = load(path)
    assert read.drivers == {"d": (replace(DEVICE, share_id=None),)}


@pytest.mark.parametrize("text", ["", "{}", '{"Data": "{}", "Checksum": 1}', '{"Data": 1, "Checksum": 1}'])
def test_a_damaged_file_keeps_the_kubelet_from_starting(api: LocalClient, kubelet_dir: Path, text: str) -> None:
    (kubelet_dir / "dra_manager_state").write_text(text)
    kubelet = KubeletEmulator("node-1", api, kubelet_dir)
    with pytest.raises(CheckpointError, match="dra_manager_state"):
        kubelet.start()
    with pytest.raises(StoppedError):
        kubelet.claims  # noqa: B018 - the property raises


def test_a_second_start_is_an_error(kubelet: KubeletEmulator) -> None:
    with pytest.raises(RuntimeError, match="runs already"):
        kubelet.start()
