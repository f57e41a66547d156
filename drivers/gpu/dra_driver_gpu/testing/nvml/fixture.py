"""Reads the GPUs of a fixture: a file `nvml.yaml` in the root of a node, which stands for its NVML.

    driver: 580.95.05            # optional, like cuda (13000) and everything below except `model`
    gpus:
    - model: A100-40GB           # see `MODELS`
      count: 4
      mig: true
      instances:                 # the MIG devices of each of the four GPUs
      - {profile: 3g.20gb, start: 0}
      - {profile: 3g.20gb, start: 4, compute: [1, 2]}   # divided into compute instances of 1 and 2 slices
    - model: L4
      pciAddress: "0000:41:00.0"

Minor numbers count up over all GPUs; PCI addresses and UUIDs follow from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dra_driver_gpu.nvml.mig import Placement
from dra_driver_gpu.testing.nvml.library import MemoryNvml
from dra_driver_gpu.testing.nvml.models import FakeGpu, fake_gpu
from dra_driver_gpu.testing.nvml.state import GpuState, RefusedCallError
from dra_sdk import SettingsError

FIXTURE_FILE: Final = "nvml.yaml"
_MAX_GPUS: Final = 32


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class _Instance(_Strict):
    profile: str
    start: int = Field(ge=0)
    compute: tuple[int, ...] = Field(default=(), strict=False)


class _Gpu(_Strict):
    model: str
    count: int = Field(default=1, ge=1, le=_MAX_GPUS)
    mig: bool = False
    guest: bool = False
    ecc: bool = True
    uuid: str | None = None
    pci_address: str | None = Field(default=None, alias="pciAddress")
    instances: tuple[_Instance, ...] = Field(default=(), strict=False)


class _Fixture(_Strict):
    driver: str = "580.95.05"
    cuda: int = 13000
    gpus: tuple[_Gpu, ...] = Field(strict=False)


def read_fixture(path: Path) -> MemoryNvml:
    """Return the NVML that this file describes, not yet initialized.

    Raises SettingsError with the file, the field and what is wrong.
    """
    fixture = _read(path)
    entries = [entry for entry in fixture.gpus for _ in range(entry.count)]
    try:
        gpus = [_gpu(entry, minor) for minor, entry in enumerate(entries)]
        nvml = MemoryNvml(gpus, driver_version=fixture.driver, cuda_version=fixture.cuda)
        for gpu, entry in zip(gpus, entries, strict=True):
            for instance in entry.instances:
                _create(nvml.state(gpu.uuid), instance)
    except SettingsError as error:
        raise SettingsError(f"{path}: {error}") from None
    return nvml


def _read(path: Path) -> _Fixture:
    try:
        return _Fixture.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    except ValidationError as error:
        raise SettingsError(f"{path}: {'; '.join(_problems(error))}") from None


def _problems(error: ValidationError) -> Iterator[str]:
    for problem in error.errors():
        field = ".".join(map(str, problem["loc"])) or "the document"
        yield f"{field}: {problem['msg']}"


def _gpu(entry: _Gpu, minor: int) -> FakeGpu:
    if entry.count > 1 and (entry.uuid or entry.pci_address):
        raise SettingsError(f"{entry.count} GPUs {entry.model} cannot share a uuid or a pciAddress")
    gpu = fake_gpu(entry.model, minor, mig=entry.mig, guest=entry.guest, ecc=entry.ecc)
    if entry.mig and not gpu.model.mig:
        raise SettingsError(f"mig is true for {entry.model}, which has no MIG")
    return replace(gpu, uuid=entry.uuid or gpu.uuid, pci_address=entry.pci_address or gpu.pci_address)


def _create(state: GpuState, wanted: _Instance) -> None:
    """Create a GPU instance with the listed compute instances; by default one as large as the GPU instance."""
    rows = {row.name: row for row in state.gpu.model.mig}
    where = f"instance {wanted.profile} at {wanted.start} of GPU {state.gpu.minor}"
    if wanted.profile not in rows:
        raise SettingsError(f"{where}: no such profile; there are {', '.join(rows) or 'none'}")
    row = rows[wanted.profile]
    try:
        instance = state.create(row.id, Placement(wanted.start, row.size))
        by_slices = {profile.slices: profile for profile in reversed(instance.profiles)}
        for slices in wanted.compute or (row.slices,):
            if slices not in by_slices:
                raise SettingsError(f"{where}: no compute instance of {slices} slices; there are {sorted(by_slices)}")
            state.create_compute(instance, by_slices[slices].id)
    except RefusedCallError as refused:
        raise SettingsError(f"{where} cannot be created: {refused.code.name}") from None
