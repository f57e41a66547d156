"""GPUs for virtual machines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from dra_driver_gpu.config import API_VERSION
from dra_driver_gpu.nvml.real import RealNvml
from dra_driver_gpu.prepare.vfio import holders

from dra_sdk import DraError, PermanentError, RetriableError
from dra_sdk.testing import NotAllocatedError, claim, request

GPU = "0000:10:00.0"


@pytest.fixture
def make_vms(make_gpus):
    return lambda *models, **settings: make_gpus(*models, passthrough=True, vfio_seconds=0.2, **settings)


def vm(name="vm", **more):
    return request(name, device_class="vfio.gpu.nvidia.com", **more)


def iommu(policy="LegacyOnly", *, api=False):
    return {
        "apiVersion": API_VERSION,
        "kind": "VfioDeviceConfig",
        "iommu": {"backendPolicy": policy, "enableAPIDevice": api},
    }


def driver(rig, address=GPU):
    link = rig.node.path(f"/sys/bus/pci/devices/{address}/driver")
    return link.readlink().name if link.is_symlink() else None


def set_driver(rig, name, address=GPU):
    link = rig.node.path(f"/sys/bus/pci/devices/{address}/driver")
    link.unlink(missing_ok=True)
    if name is not None:
        rig.node.path(f"/sys/bus/pci/drivers/{name}").mkdir(exist_ok=True)
        link.symlink_to(os.path.relpath(rig.node.path(f"/sys/bus/pci/drivers/{name}"), link.parent.resolve()))


def function(rig, address, class_code, group, name):
    """Another PCI function."""
    at = rig.node.path(f"/sys/devices/pci0000:0f/{address}")
    at.mkdir(parents=True)
    for file, text in {
        "vendor": "0x10de",
        "device": "0x10f0",
        "class": class_code,
        "driver_override": "(null)",
    }.items():
        (at / file).write_text(f"{text}\n")
    (at / "iommu_group").symlink_to(f"/sys/kernel/iommu_groups/{group}")
    rig.node.path(f"/sys/bus/pci/devices/{address}").symlink_to(f"../../../devices/pci0000:0f/{address}")
    for file in ("bind", "unbind"):
        rig.node.file(f"/sys/bus/pci/drivers/{name}/{file}")
    set_driver(rig, name, address)


def test_from_nvidia_to_vfio_and_back(make_vms):
    rig = make_vms("H100-80GB")
    rig.memory.state(rig.memory.gpus[0].uuid).persistence = True
    prepared = rig.driver.prepare(claim(vm()))
    rig.register_nodes()
    assert driver(rig) == "vfio-pci"
    assert not rig.memory.state(rig.memory.gpus[0].uuid).persistence
    container = prepared.container()
    assert set(container.devices) == {"/dev/vfio/20"}
    assert container.env["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert len(container.mounts) == 1  # its metadata; a virtual machine brings its own driver
    rig.driver.restart()
    rig.driver.unprepare(prepared)
    assert driver(rig) == "nvidia"
    assert rig.memory.state(rig.memory.gpus[0].uuid).persistence
    assert rig.node.path(f"/sys/bus/pci/devices/{GPU}/driver_override").read_text() == "(null)\n"


def test_the_gpu_and_its_sibling_exclude_each_other(make_vms):
    rig = make_vms("L4")
    prepared = rig.driver.prepare(claim(vm()))
    with pytest.raises(NotAllocatedError):
        rig.driver.allocate(claim("gpu"))
    rig.driver.unprepare(prepared)
    rig.driver.prepare(claim("gpu"))
    with pytest.raises(NotAllocatedError):
        rig.driver.allocate(claim(vm()))


@pytest.mark.parametrize(
    ("config", "with_device", "nodes"),
    [
        (iommu(), True, {"/dev/vfio/20"}),
        (iommu(api=True), True, {"/dev/vfio/20", "/dev/vfio/vfio"}),
        (iommu("PreferIommuFD"), True, {"/dev/vfio/devices/vfio3"}),
        (iommu("PreferIommuFD", api=True), True, {"/dev/vfio/devices/vfio3", "/dev/iommu"}),
        (iommu("PreferIommuFD", api=True), False, {"/dev/vfio/20", "/dev/vfio/vfio"}),
    ],
)
def test_the_iommu_interface(make_vms, config, with_device, nodes):
    rig = make_vms("L4")
    if with_device:
        rig.node.file(f"/sys/bus/pci/devices/{GPU}/vfio-dev/vfio3/uevent")
        rig.node.file("/dev/vfio/devices/vfio3")
    prepared = rig.driver.prepare(claim(vm(), config=config))
    rig.register_nodes()
    assert set(prepared.container().devices) == nodes


def test_a_gpu_that_an_operator_gave_to_vfio_stays_there(make_vms):
    rig = make_vms("L4", "L4")
    set_driver(rig, "vfio-pci")
    rig.node.file("/dev/vfio/20")
    prepared = rig.driver.prepare(claim(vm()))
    assert prepared.names == ["gpu-vfio-0"]
    rig.driver.unprepare(prepared)
    assert driver(rig) == "vfio-pci"
    assert rig.effects.calls == []


@pytest.mark.parametrize("former", ["nouveau", None])
def test_whatever_driver_it_had_is_put_back(make_vms, former):
    rig = make_vms("L4")
    for file in ("bind", "unbind"):
        rig.node.file(f"/sys/bus/pci/drivers/nouveau/{file}")
    set_driver(rig, former)
    rig.node.file(f"/sys/bus/pci/devices/{GPU}/driver_override", "nouveau\n")
    prepared = rig.driver.prepare(claim(vm()))
    assert driver(rig) == "vfio-pci"
    rig.driver.unprepare(prepared)
    assert driver(rig) == former
    assert rig.node.path(f"/sys/bus/pci/devices/{GPU}/driver_override").read_text() == "nouveau\n"


def test_its_audio_function_goes_with_it(make_vms):
    rig = make_vms("L4")
    audio = "0000:10:00.1"
    function(rig, audio, "0x040300", 20, "snd_hda_intel")
    prepared = rig.driver.prepare(claim(vm()))
    assert (driver(rig), driver(rig, audio)) == ("vfio-pci", "vfio-pci")
    rig.driver.unprepare(prepared)
    assert (driver(rig), driver(rig, audio)) == ("nvidia", "snd_hda_intel")


def test_a_stranger_in_its_iommu_group(make_vms):
    rig = make_vms("L4")
    function(rig, "0000:12:00.0", "0x020000", 20, "mlx5_core")
    with pytest.raises(PermanentError, match=r"0000:12:00.0 with driver mlx5_core is in the same IOMMU group 20"):
        rig.driver.prepare(claim(vm()))
    assert driver(rig) == "nvidia"


def test_a_gpu_with_virtual_functions(make_vms):
    rig = make_vms("L4")
    rig.node.file(f"/sys/bus/pci/devices/{GPU}/sriov_totalvfs", "4\n")
    rig.node.link(f"/sys/devices/pci0000:0f/{GPU}/virtfn0", "../0000:10:00.4")
    with pytest.raises(PermanentError, match="has 1 virtual functions"):
        rig.driver.prepare(claim(vm()))


def test_whoever_holds_the_gpu_is_waited_for_and_named(make_vms):
    rig = make_vms("L4")
    asked = rig.driver.allocate(claim(vm()))
    link = rig.node.path("/proc/4711/fd/3")
    link.parent.mkdir(parents=True)
    link.symlink_to("/dev/nvidia0")
    with pytest.raises(RetriableError, match="still in use after 0 s, by processes 4711"):
        rig.driver.prepare(asked)
    assert driver(rig) == "nvidia"
    link.unlink()
    rig.driver.prepare(asked)
    assert driver(rig) == "vfio-pci"


def test_holders_on_this_machine(make_vms, tmp_path):
    rig = make_vms("L4")
    held = tmp_path / "held"
    with held.open("w"):
        site = type(rig.site)(Path("/"), rig.settings, rig.site.library, rig.effects)
        assert holders(site, str(held)) == [os.getpid()]
    assert holders(site, str(held)) == []


def test_a_lock_of_the_driver_is_taken_first(make_vms):
    rig = make_vms("L4")
    lock = rig.node.file(f"/proc/driver/nvidia/gpus/{GPU}/unbindLock", "0\n")
    rig.driver.prepare(claim(vm()))
    assert rig.effects.calls[0] == f"write proc/driver/nvidia/gpus/{GPU}/unbindLock"
    assert lock.read_text().strip() == "1"


@pytest.mark.parametrize("there", [True, False])
def test_the_kernel_module_is_loaded_where_it_is_missing(make_vms, there):
    rig = make_vms("L4")
    rig.node.remove("/sys/bus/pci/drivers/vfio-pci")
    if there:
        rig.driver.prepare(claim(vm()))
    else:
        rig.effects.modules.clear()
        with pytest.raises(DraError, match="the kernel has no PCI driver vfio-pci"):
            rig.driver.prepare(claim(vm()))
    assert rig.effects.calls[0] == f"run chroot {rig.node.root} modprobe vfio-pci"
    assert driver(rig) == ("vfio-pci" if there else "nvidia")


def test_a_node_whose_gpus_are_all_with_vfio_needs_no_driver(make_vms):
    rig = make_vms("L4", nvml=RealNvml)
    set_driver(rig, "vfio-pci")
    for path in rig.node.path("/usr/lib/x86_64-linux-gnu").glob("libnvidia-ml*"):
        path.unlink()
    assert list(rig.driver.devices) == ["gpu-vfio-0"]
    rig.node.file("/dev/vfio/20")
    rig.driver.unprepare(rig.driver.prepare(claim(vm())))


def test_a_gpu_that_is_cut_is_not_given_away(make_vms):
    rig = make_vms("H100-80GB", dynamic_mig=True)
    rig.driver.prepare(claim(request("mig", device_class="mig.nvidia.com")))
    with pytest.raises(NotAllocatedError):
        rig.driver.allocate(claim(vm()))


def test_two_gpus_of_one_claim(make_vms):
    rig = make_vms("L4", "L4")
    prepared = rig.driver.prepare(claim(vm(count=2)), containers={"main": ["vm"]})
    rig.register_nodes()
    assert set(prepared.container().devices) == {"/dev/vfio/20", "/dev/vfio/21"}
    rig.driver.unprepare(prepared)
    assert (driver(rig), driver(rig, "0000:11:00.0")) == ("nvidia", "nvidia")


def test_virtual_machines_find_the_address_in_the_metadata_file(make_vms):
    rig = make_vms("L4")
    prepared = rig.driver.prepare(claim(vm()))
    rig.register_nodes()
    (path,) = [path for path in prepared.container().mounts if "metadata" in path or "dra" in path]
    assert GPU in prepared.container().read(path)


def test_admin_access_binds_nothing(make_vms):
    rig = make_vms("L4")
    prepared = rig.driver.prepare(claim(vm(admin_access=True)))
    rig.register_nodes()
    assert set(prepared.container().devices) == set()
    rig.driver.unprepare(prepared)
    assert rig.effects.calls == []
