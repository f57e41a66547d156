"""GPUs from a file."""

from __future__ import annotations

import pytest
from dra_driver_gpu.nvml import queries
from dra_driver_gpu.testing.nvml import read_fixture

from dra_sdk import SettingsError

_FIXTURE = """
driver: 570.86.10
cuda: 12080
gpus:
- model: A100-40GB
  count: 2
  mig: true
  instances:
  - {profile: 3g.20gb, start: 4}
  - {profile: 1g.5gb, start: 0}
- model: L4
  pciAddress: "0000:41:00.0"
  uuid: GPU-mine
"""


@pytest.fixture
def write(tmp_path):
    def write(text):
        (tmp_path / "nvml.yaml").write_text(text)
        return tmp_path / "nvml.yaml"

    return write


def test_gpus_and_mig_devices_are_those_of_the_file(write):
    nvml = read_fixture(write(_FIXTURE))
    nvml.init()
    gpus = [nvml.device_by_index(index) for index in range(nvml.device_count())]
    assert (nvml.driver_version(), nvml.cuda_version()) == ("570.86.10", 12080)
    assert [gpu.minor_number() for gpu in gpus] == [0, 1, 2]
    assert [len(queries.OptionalQueries().mig_devices("", gpu)) for gpu in gpus] == [2, 2, 0]
    assert gpus[1].mig_device(0).attributes().memory_mib == 19968
    assert gpus[1].mig_device(0).attributes().multiprocessors == 42
    assert (gpus[2].uuid(), gpus[2].pci().address) == ("GPU-mine", "0000:41:00.0")


def test_the_same_file_gives_the_same_gpus(write):
    path = write(_FIXTURE)
    assert read_fixture(path).gpus == read_fixture(path).gpus


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gpus: [{model: V100}]", "there is no GPU model 'V100'; the models are A100-40GB"),
        ("gpus: [{model: L4, mig: true}]", "mig is true for L4, which has no MIG"),
        ("gpus: [{model: L4, count: 0}]", "gpus.0.count: Input should be greater than or equal to 1"),
        ("gpus: [{model: L4, colour: red}]", "gpus.0.colour: Extra inputs are not permitted"),
        ("gpus: [{model: L4, count: 2, uuid: GPU-x}]", "2 GPUs L4 cannot share a uuid or a pciAddress"),
        ("gpus: [{model: A30, mig: true, instances: [{profile: 9g, start: 0}]}]",
         "instance 9g at 0 of GPU 0: no such profile; there are 1g.6gb, 1g.6gb+me, 2g.12gb"),
        ("gpus: [{model: A30, instances: [{profile: 1g.6gb, start: 0}]}]", "cannot be created: NOT_SUPPORTED"),
        ("gpus: [{model: A30, mig: true, instances: [{profile: 2g.12gb, start: 0}, {profile: 1g.6gb, start: 1}]}]",
         "instance 1g.6gb at 1 of GPU 0 cannot be created: INSUFFICIENT_RESOURCES"),
        ("gpus: [{model: A30, mig: true, instances: [{profile: 2g.12gb, start: 0, compute: [5]}]}]",
         "instance 2g.12gb at 0 of GPU 0: no compute instance of 5 slices; there are [1, 2]"),
        ("gpus: [{model: A30, mig: true, instances: [{profile: 2g.12gb, start: 0, compute: [2, 1]}]}]",
         "instance 2g.12gb at 0 of GPU 0 cannot be created: INSUFFICIENT_RESOURCES"),
        ("", "the document: Input should be a valid dictionary"),
        ("gpus: [", "not YAML: while parsing"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_in_one_sentence(write, text, problem):
    path = write(text)
    with pytest.raises(SettingsError) as raised:
        read_fixture(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert problem in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(SettingsError, match=r"nvml\.yaml: cannot be read: No such file"):
        read_fixture(tmp_path / "nvml.yaml")


def test_a_file_that_is_not_utf_8_is_reported(tmp_path):
    (tmp_path / "nvml.yaml").write_bytes(b"gpus: [\xff]")
    with pytest.raises(SettingsError, match=r"nvml\.yaml: not YAML: 'utf-8' codec can't decode"):
        read_fixture(tmp_path / "nvml.yaml")
