"""GPUs for virtual machines."""

from __future__ import annotations

import errno
import os
import shutil
import threading

import pytest
from dra_driver_gpu.config import API_VERSION
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.real import RealNvml

from dra_sdk import DraError, HealthStatus, PermanentError, RetriableError
from dra_sdk.hardware import read_pci_devices
from dra_sdk.testing import NotAllocatedError, claim, request
from dra_sdk.testing.waiting import wait

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


def driver(harness, address=GPU):
    link = harness.node.path(f"/sys/bus/pci/devices/{address}/driver")
    return link.readlink().name if link.is_symlink() else None


def set_driver(harness, name, address=GPU):
    link = harness.node.path(f"/sys/bus/pci/devices/{address}/driver")
    link.unlink(missing_ok=True)
    if name is not None:
        harness.node.path(f"/sys/bus/pci/drivers/{name}").mkdir(exist_ok=True)
        link.symlink_to(os.path.relpath(harness.node.path(f"/sys/bus/pci/drivers/{name}"), link.parent.resolve()))


def function(harness, address, class_code, group, name):
    """Another PCI function."""
    at = harness.node.path(f"/sys/devices/pci0000:0f/{address}")
    at.mkdir(parents=True)
    for file, text in {
        "vendor": "0x10de",
        "device": "0x10f0",
        "class": class_code,
        "driver_override": "(null)",
    }.items():
        (at / file).write_text(f"{text}\n")
    (at / "iommu_group").symlink_to(f"/sys/kernel/iommu_groups/{group}")
    harness.node.path(f"/sys/bus/pci/devices/{address}").symlink_to(f"../../../devices/pci0000:0f/{address}")
    for file in ("bind", "unbind"):
        harness.node.file(f"/sys/bus/pci/drivers/{name}/{file}")
    set_driver(harness, name, address)


def test_from_nvidia_to_vfio_and_back(make_vms):
    harness = make_vms("H100-80GB")
    harness.memory.state(harness.memory.gpus[0].uuid).persistence = True
    prepared = harness.driver.prepare(claim(vm()))
    harness.register_nodes()
    assert driver(harness) == "vfio-pci"
    assert not harness.memory.state(harness.memory.gpus[0].uuid).persistence
    container = prepared.container()
    assert set(container.devices) == {"/dev/vfio/20"}
    assert container.env["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert len(container.mounts) == 1  # the metadata; a virtual machine has its own driver
    harness.driver.restart()
    harness.driver.unprepare(prepared)
    assert driver(harness) == "nvidia"
    assert harness.memory.state(harness.memory.gpus[0].uuid).persistence
    assert harness.node.path(f"/sys/bus/pci/devices/{GPU}/driver_override").read_text() == "(null)\n"


def test_the_gpu_and_its_sibling_exclude_each_other(make_vms):
    harness = make_vms("L4")
    prepared = harness.driver.prepare(claim(vm()))
    with pytest.raises(NotAllocatedError):
        harness.driver.allocate(claim("gpu"))
    harness.driver.unprepare(prepared)
    harness.driver.prepare(claim("gpu"))
    with pytest.raises(NotAllocatedError):
        harness.driver.allocate(claim(vm()))


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
    harness = make_vms("L4")
    if with_device:
        harness.node.file(f"/sys/bus/pci/devices/{GPU}/vfio-dev/vfio3/uevent")
        harness.node.file("/dev/vfio/devices/vfio3")
    prepared = harness.driver.prepare(claim(vm(), config=config))
    harness.register_nodes()
    assert set(prepared.container().devices) == nodes


@pytest.mark.parametrize("name", ["vfio-pci", "l4_vfio_pci"])
def test_a_gpu_that_an_operator_bound_to_vfio_stays_bound(make_vms, name):
    harness = make_vms("L4", "L4")
    set_driver(harness, name)
    harness.node.file("/dev/vfio/20")
    prepared = harness.driver.prepare(claim(vm()))
    assert prepared.names == ["gpu-vfio-0"]
    harness.driver.unprepare(prepared)
    assert driver(harness) == name
    assert harness.effects.calls == []


@pytest.mark.parametrize("before", ["nouveau", None])
def test_its_driver_and_override_are_restored(make_vms, before):
    harness = make_vms("L4")
    for file in ("bind", "unbind"):
        harness.node.file(f"/sys/bus/pci/drivers/nouveau/{file}")
    set_driver(harness, before)
    harness.node.file(f"/sys/bus/pci/devices/{GPU}/driver_override", "nouveau\n")
    prepared = harness.driver.prepare(claim(vm()))
    assert driver(harness) == "vfio-pci"
    harness.driver.unprepare(prepared)
    assert driver(harness) == before
    assert harness.node.path(f"/sys/bus/pci/devices/{GPU}/driver_override").read_text() == "nouveau\n"


def test_its_audio_function_is_bound_with_it(make_vms):
    harness = make_vms("L4")
    audio = "0000:10:00.1"
    function(harness, audio, "0x040300", 20, "snd_hda_intel")
    prepared = harness.driver.prepare(claim(vm()))
    assert (driver(harness), driver(harness, audio)) == ("vfio-pci", "vfio-pci")
    harness.driver.unprepare(prepared)
    assert (driver(harness), driver(harness, audio)) == ("nvidia", "snd_hda_intel")


def test_another_function_in_its_iommu_group_is_an_error(make_vms):
    harness = make_vms("L4")
    function(harness, "0000:12:00.0", "0x020000", 20, "mlx5_core")
    with pytest.raises(PermanentError, match=r"0000:12:00.0 with driver mlx5_core is in the same IOMMU group 20"):
        harness.driver.prepare(claim(vm()))
    assert driver(harness) == "nvidia"


@pytest.mark.parametrize(("name", "class_code"), [("pcieport", "0x060400"), ("pci-stub", "0x020000")])
def test_a_function_without_dma_may_be_in_its_iommu_group(make_vms, name, class_code):
    harness = make_vms("L4")
    function(harness, "0000:12:00.0", class_code, 20, name)
    harness.driver.prepare(claim(vm()))
    assert driver(harness) == "vfio-pci"


def test_a_bridge_whose_driver_may_do_dma_is_an_error(make_vms):
    """As the kernel decides (tests/lab): VFIO refuses the whole group."""
    harness = make_vms("L4")
    function(harness, "0000:12:00.0", "0x060400", 20, "shpchp")
    with pytest.raises(PermanentError, match=r"0000:12:00.0 with driver shpchp is in the same IOMMU group 20"):
        harness.driver.prepare(claim(vm()))


def test_a_gpu_with_virtual_functions_is_an_error(make_vms):
    harness = make_vms("L4")
    harness.node.file(f"/sys/bus/pci/devices/{GPU}/sriov_totalvfs", "4\n")
    harness.node.link(f"/sys/devices/pci0000:0f/{GPU}/virtfn0", "../0000:10:00.4")
    with pytest.raises(PermanentError, match="has 1 virtual functions"):
        harness.driver.prepare(claim(vm()))


def test_processes_that_have_the_gpu_open_are_waited_for_and_named(make_vms):
    harness = make_vms("L4")
    asked = harness.driver.allocate(claim(vm()))
    link = harness.node.path("/proc/4711/fd/3")
    link.parent.mkdir(parents=True)
    link.symlink_to("/dev/nvidia0")
    with pytest.raises(RetriableError, match="still in use after 0 s, by processes 4711"):
        harness.driver.prepare(asked)
    assert driver(harness) == "nvidia"
    link.unlink()
    harness.driver.prepare(asked)
    assert driver(harness) == "vfio-pci"


def test_the_unbind_lock_of_the_driver_is_taken_first(make_vms):
    harness = make_vms("L4")
    lock = harness.node.file(f"/proc/driver/nvidia/gpus/{GPU}/unbindLock", "0\n")
    harness.driver.prepare(claim(vm()))
    assert harness.effects.calls[0] == f"write proc/driver/nvidia/gpus/{GPU}/unbindLock"
    assert lock.read_text().strip() == "1"


@pytest.mark.parametrize("there", [True, False])
def test_the_kernel_module_is_loaded_if_it_is_missing(make_vms, there):
    harness = make_vms("L4")
    harness.node.remove("/sys/bus/pci/drivers/vfio-pci")
    if there:
        harness.driver.prepare(claim(vm()))
    else:
        harness.effects.modules.clear()
        with pytest.raises(DraError, match="the kernel has no PCI driver vfio-pci"):
            harness.driver.prepare(claim(vm()))
    assert harness.effects.calls[0] == f"run chroot {harness.node.root} modprobe vfio-pci"
    assert driver(harness) == ("vfio-pci" if there else "nvidia")


def test_a_node_whose_gpus_are_all_bound_to_vfio_needs_no_driver(make_vms):
    harness = make_vms("L4", nvml=RealNvml)
    set_driver(harness, "vfio-pci")
    for path in harness.node.path("/usr/lib/x86_64-linux-gnu").glob("libnvidia-ml*"):
        path.unlink()
    assert list(harness.driver.devices) == ["gpu-vfio-0"]
    harness.node.file("/dev/vfio/20")
    harness.driver.unprepare(harness.driver.prepare(claim(vm())))


def test_a_gpu_with_mig_devices_is_not_allocated(make_vms):
    harness = make_vms("H100-80GB", dynamic_mig=True)
    harness.driver.prepare(claim(request("mig", device_class="mig.nvidia.com")))
    with pytest.raises(NotAllocatedError):
        harness.driver.allocate(claim(vm()))


def test_two_gpus_of_one_claim(make_vms):
    harness = make_vms("L4", "L4")
    prepared = harness.driver.prepare(claim(vm(count=2)), containers={"main": ["vm"]})
    harness.register_nodes()
    assert set(prepared.container().devices) == {"/dev/vfio/20", "/dev/vfio/21"}
    harness.driver.unprepare(prepared)
    assert (driver(harness), driver(harness, "0000:11:00.0")) == ("nvidia", "nvidia")


def test_it_is_the_published_gpu_although_indices_have_shifted(make_vms):
    harness = make_vms("L4", "L4", "L4")
    where = 'device.attributes["resource.kubernetes.io"].pciBusID == "0000:11:00.0"'
    asked = harness.driver.allocate(claim(vm(where=where)))
    harness.node.path(f"/sys/bus/pci/devices/{GPU}").unlink()
    harness.driver.prepare(harness.prepared(asked))
    assert [driver(harness, f"0000:1{bus}:00.0") for bus in (1, 2)] == ["vfio-pci", "nvidia"]


def test_the_gpu_of_one_virtual_machine_is_not_given_to_another(make_vms):
    """After another GPU fell off the bus it has another name, which the scheduler takes for a free device."""
    harness = make_vms("L4", "L4")
    where = 'device.attributes["resource.kubernetes.io"].pciBusID == "0000:11:00.0"'
    first = harness.driver.prepare(claim(vm(where=where)))
    harness.node.path(f"/sys/bus/pci/devices/{GPU}").unlink()
    for gpu in harness.memory.gpus:
        harness.memory.unbind(gpu.uuid)
    harness.driver.discover()
    assert (first.names, list(harness.driver.devices)) == (["gpu-vfio-1"], ["gpu-vfio-0"])
    with pytest.raises(RetriableError, match=f"0000:11:00.0 belongs to the virtual machine of claim {first.ref.uid}"):
        harness.driver.prepare(claim(vm(where=where)))
    harness.driver.unprepare(first)
    assert driver(harness, "0000:11:00.0") == "nvidia"


def test_the_functions_of_the_node_are_read_once_for_a_claim(make_vms, monkeypatch):
    harness, read = make_vms("L4", "L4"), []
    asked = harness.driver.allocate(claim(vm(count=2)))
    for module in ("prepare.vfio", "describe.passthrough"):
        monkeypatch.setattr(
            f"dra_driver_gpu.{module}.read_pci_devices", lambda host: read.append(host) or read_pci_devices(host)
        )
    harness.driver.prepare(harness.prepared(asked))
    assert (driver(harness), driver(harness, "0000:11:00.0")) == ("vfio-pci", "vfio-pci")
    assert len(read) == 1


def test_virtual_machines_find_the_address_in_the_metadata_file(make_vms):
    harness = make_vms("L4")
    prepared = harness.driver.prepare(claim(vm()))
    harness.register_nodes()
    (path,) = [path for path in prepared.container().mounts if "metadata" in path or "dra" in path]
    assert GPU in prepared.container().read(path)


def test_admin_access_binds_nothing(make_vms):
    harness = make_vms("L4")
    prepared = harness.driver.prepare(claim(vm(admin_access=True)))
    harness.register_nodes()
    assert set(prepared.container().devices) == set()
    harness.driver.unprepare(prepared)
    assert harness.effects.calls == []


# -- processes that use it


def hold(harness, node, pid=4711):
    link = harness.node.path(f"/proc/{pid}/fd/3")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(node)
    return link


@pytest.mark.parametrize(
    "node", ["/dev/dri/card1", "/dev/dri/renderD128", "/host/dev/nvidia0", "/dev/nvidia0 (deleted)"]
)
def test_a_process_that_has_another_of_its_nodes_open_is_waited_for(make_vms, node):
    harness = make_vms("L4")
    asked = harness.driver.allocate(claim(vm()))
    hold(harness, node)
    with pytest.raises(RetriableError, match="by processes 4711"):
        harness.driver.prepare(asked)


def test_processes_that_use_other_gpus_are_not_waited_for(make_vms):
    harness = make_vms("L4")
    for fd, node in enumerate(("/dev/nvidia01", "/dev/nvidiactl", "/dev/dri/card2", "/dev/nvidia1")):
        hold(harness, node, 4711 + fd)
    harness.driver.prepare(claim(vm()))
    assert driver(harness) == "vfio-pci"


def test_processes_are_waited_for_although_nvml_does_not_know_the_gpu(make_vms):
    harness = make_vms("L4")
    asked = harness.driver.allocate(claim(vm()))
    hold(harness, "/dev/nvidia0")
    harness.memory.unbind(harness.memory.gpus[0].uuid)
    with pytest.raises(RetriableError, match="by processes 4711"):
        harness.driver.prepare(harness.prepared(asked))
    assert driver(harness) == "nvidia"


def test_claims_for_other_gpus_do_not_wait_for_its_users(make_gpus):
    harness = make_gpus("L4", "L4", passthrough=True, vfio_seconds=40.0)
    asked = harness.driver.allocate(claim(vm()))
    other = harness.driver.allocate(claim("gpu"))
    link = hold(harness, "/dev/nvidia0")
    waiting = threading.Thread(target=harness.driver.prepare, args=(harness.prepared(asked),))
    waiting.start()
    try:
        wait(lambda: harness.record(GPU).vfio)  # from now on it waits for the process
        prepared = harness.driver.prepare(harness.prepared(other))
        assert (waiting.is_alive(), driver(harness)) == (True, "nvidia")
    finally:
        link.unlink()
        waiting.join()
    assert driver(harness) == "vfio-pci"
    assert prepared.names == ["gpu-1"]


@pytest.mark.parametrize("node", ["/dev/vfio/20", "/dev/vfio/devices/vfio3"])
def test_a_virtual_machine_that_still_runs_is_waited_for_and_named(make_vms, node):
    """Unbinding would block in the kernel until it has ended."""
    harness = make_vms("L4")
    harness.node.file(f"/sys/bus/pci/devices/{GPU}/vfio-dev/vfio3/uevent")
    prepared = harness.driver.prepare(claim(vm()))
    link = hold(harness, node)
    with pytest.raises(RetriableError, match=f"GPU {GPU} was still in use after 0 s, by processes 4711"):
        harness.driver.unprepare(prepared)
    assert driver(harness) == "vfio-pci"
    link.unlink()
    harness.driver.unprepare(prepared)
    assert driver(harness) == "nvidia"


def test_a_group_that_the_kernel_reports_as_busy_is_waited_for(make_vms, monkeypatch):
    """A process may have closed the group and kept the device, which its open files do not show."""
    harness = make_vms("L4")
    prepared = harness.driver.prepare(claim(vm()))
    real = os.open

    def busy(path, *arguments, **more):
        if str(path).endswith("/dev/vfio/20"):
            raise OSError(errno.EBUSY, "busy")
        return real(path, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", busy)
        with pytest.raises(RetriableError, match=f"GPU {GPU} was still in use after 0 s, by a process that closed"):
            harness.driver.unprepare(prepared)
    assert driver(harness) == "vfio-pci"
    harness.driver.unprepare(prepared)
    assert driver(harness) == "nvidia"


# -- unprepare


def test_nvml_is_closed_while_a_driver_changes_so_that_it_finds_the_gpu(make_vms, monkeypatch):
    harness = make_vms("L4")
    users, write = [], harness.effects.write

    def watched(path, text, timeout):
        users.append(harness.memory.users)
        write(path, text, timeout)

    monkeypatch.setattr(harness.effects, "write", watched)
    library = harness.driver.plugin.nvidia_node(harness.node.node).library
    stop = threading.Event()

    def watch():
        while not stop.is_set():
            with library.use():
                while not (library.close_requested or stop.wait(0.01)):
                    pass

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        harness.driver.unprepare(harness.driver.prepare(claim(vm())))
    finally:
        stop.set()
        watcher.join()
    assert users
    assert set(users) == {0}


def test_a_gpu_that_fell_off_the_bus_does_not_fail_the_unprepare(make_vms, caplog):
    harness = make_vms("L4")
    harness.memory.state(harness.memory.gpus[0].uuid).persistence = True
    prepared = harness.driver.prepare(claim(vm()))
    harness.memory.lose(harness.memory.gpus[0].uuid)
    harness.driver.unprepare(prepared)
    harness.driver.assert_clean()
    assert "is gone, so its persistence mode is not restored" in caplog.text


def test_a_driver_that_was_removed_does_not_fail_the_unprepare(make_vms, caplog):
    """It takes the GPU by itself when it is loaded again."""
    harness = make_vms("L4")
    harness.memory.state(harness.memory.gpus[0].uuid).persistence = True
    prepared = harness.driver.prepare(claim(vm()))
    shutil.rmtree(harness.node.path("/sys/bus/pci/drivers/nvidia"))
    harness.memory.fail("nvmlInitWithFlags", ReturnCode.DRIVER_NOT_LOADED, times=100)
    harness.driver.unprepare(prepared)
    harness.driver.assert_clean()
    assert driver(harness) is None
    assert harness.node.path(f"/sys/bus/pci/devices/{GPU}/driver_override").read_text() == "(null)\n"
    assert "stays without driver: the kernel no longer has nvidia" in caplog.text
    assert "its persistence mode is not restored" in caplog.text


def test_a_refused_persistence_mode_is_a_warning_and_the_claim_ends(make_vms, caplog):
    """As nvidia-persistenced refuses it, though the GPU is back."""
    harness = make_vms("L4", "L4")
    for gpu in harness.memory.gpus:
        harness.memory.state(gpu.uuid).persistence = True
    prepared = harness.driver.prepare(claim(vm(count=2)))
    harness.memory.fail("nvmlDeviceSetPersistenceMode", ReturnCode.UNKNOWN, times=100)
    harness.driver.unprepare(prepared)
    harness.driver.assert_clean()
    assert (driver(harness), driver(harness, "0000:11:00.0")) == ("nvidia", "nvidia")
    assert caplog.text.count("which does no harm to the next claim: persistence mode of GPU 0000:1") == 2


def test_a_gpu_that_a_machine_keeps_holds_the_claim_and_the_other_gpu_is_back(make_vms):
    harness = make_vms("L4", "L4")
    prepared = harness.driver.prepare(claim(vm(count=2)))
    node = harness.node.path("/dev/vfio/20")
    with node.open():
        users = harness.node.path("/proc/4711/fd")
        users.mkdir(parents=True)
        (users / "7").symlink_to("/dev/vfio/20")
        with pytest.raises(RetriableError, match=r"^kernel driver of GPU 0000:10:00.0: GPU .* was still in use"):
            harness.driver.unprepare(prepared)
    assert (driver(harness), driver(harness, "0000:11:00.0")) == ("vfio-pci", "nvidia")
    shutil.rmtree(users)
    harness.driver.unprepare(prepared)
    harness.driver.assert_clean()
    assert driver(harness) == "nvidia"


def test_another_card_at_the_address_is_left_alone(make_vms, caplog):
    harness = make_vms("L4")
    harness.memory.state(harness.memory.gpus[0].uuid).persistence = True
    prepared = harness.driver.prepare(claim(vm()))
    harness.node.path(f"/sys/bus/pci/devices/{GPU}/device").write_text("0x1234\n")
    set_driver(harness, "other")
    harness.driver.unprepare(prepared)
    harness.driver.assert_clean()
    assert driver(harness) == "other"
    assert "GPU 0000:10:00.0 is gone, or was replaced by another card" in caplog.text


def test_the_unbind_lock_is_released_if_binding_fails(make_vms):
    harness = make_vms("L4")
    lock = harness.node.file(f"/proc/driver/nvidia/gpus/{GPU}/unbindLock", "0\n")
    asked = harness.driver.allocate(claim(vm()))
    harness.effects.fail_call(2)  # the unbinding
    with pytest.raises(DraError, match="injected"):
        harness.driver.prepare(asked)
    assert (driver(harness), lock.read_text()) == ("nvidia", "0\n")


def test_two_gpus_of_one_group_with_their_audio_functions(make_vms):
    harness = make_vms("L4", "L4")
    group = harness.node.path("/sys/bus/pci/devices/0000:11:00.0/iommu_group")
    group.unlink()
    group.symlink_to("/sys/kernel/iommu_groups/20")
    for address in ("0000:10:00.1", "0000:11:00.1"):
        function(harness, address, "0x040300", 20, "snd_hda_intel")
    prepared = harness.driver.prepare(claim(vm(count=2)))
    assert driver(harness, "0000:11:00.1") == "vfio-pci"
    harness.driver.unprepare(prepared)
    assert {driver(harness, f"0000:1{bus}:00.1") for bus in (0, 1)} == {"snd_hda_intel"}


def test_nvidia_smi_sets_persistence_if_its_daemon_is_in_a_driver_container(make_vms, monkeypatch):
    """Our NVML does not find its socket, and the daemon would hold the GPU."""
    harness = make_vms("L4", driver_root="/run/nvidia/driver")
    for path in ("bin/sh", "run/nvidia-persistenced/socket"):
        harness.node.file(f"/run/nvidia/driver/{path}")
    harness.memory.state(harness.memory.gpus[0].uuid).persistence = True
    commands = []
    monkeypatch.setattr(harness.effects, "run", lambda command: commands.append(list(command.argv)) or "")
    harness.driver.unprepare(harness.driver.prepare(claim(vm())))
    root = f"{harness.node.root}/run/nvidia/driver"
    assert commands == [["chroot", root, "/usr/bin/nvidia-smi", "-i", GPU, "-pm", on] for on in ("0", "1")]


# -- a change from which the kernel does not return


OTHER = "0000:11:00.0"


def at(address):
    return vm(where=f'device.attributes["resource.kubernetes.io"].pciBusID == "{address}"')


@pytest.mark.parametrize("file", ["vfio-pci/bind", "nvidia/unbind"])
def test_claims_for_other_gpus_go_on_while_the_kernel_does_not_return(make_vms, file):
    harness = make_vms("L4", "L4", "L4")
    harness.effects.hang_seconds = 1.0
    first, other, plain = (harness.driver.allocate(claim(requested)) for requested in (at(GPU), at(OTHER), "gpu"))
    harness.effects.hang_write(file, GPU)
    errors = []

    def prepare_first():
        with pytest.raises(RetriableError) as error:
            harness.driver.prepare(harness.prepared(first))
        errors.append(str(error.value))

    waiting = threading.Thread(target=prepare_first)
    waiting.start()
    try:
        wait(harness.effects.pending)  # NVML is closed now
        harness.driver.prepare(harness.prepared(plain))
        harness.driver.prepare(harness.prepared(other))
    finally:
        waiting.join()
    assert driver(harness, OTHER) == "vfio-pci"
    assert (
        f"cannot write '{GPU}' to {harness.node.root}/sys/bus/pci/drivers/{file}: the kernel did not return"
        in errors[0]
    )


def test_health_goes_on_while_the_kernel_does_not_return(make_vms):
    harness = make_vms("L4", "L4")
    stop, known, unhealthy = threading.Event(), set(), set()

    def watch():
        for report in harness.driver.plugin.dra_device_health(harness.node.node, stop):
            known.update(health.device for health in report)
            unhealthy.update(health.device for health in report if health.status is HealthStatus.UNHEALTHY)

    asked = harness.driver.allocate(claim(at(GPU)))
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        wait(lambda: "gpu-1" in known)
        harness.effects.hang_write("vfio-pci/bind", GPU)
        with pytest.raises(RetriableError, match="did not return"):
            harness.driver.prepare(harness.prepared(asked))
        harness.memory.lose(harness.memory.gpus[1].uuid)
        wait(lambda: "gpu-1" in unhealthy)
    finally:
        stop.set()
        watcher.join()


def test_the_next_call_for_the_gpu_says_so_at_once_and_writes_nothing(make_vms):
    harness = make_vms("L4")
    asked = harness.driver.allocate(claim(vm()))
    harness.effects.hang_write("vfio-pci/bind", GPU)
    with pytest.raises(RetriableError, match="did not return"):
        harness.driver.prepare(asked)
    calls = len(harness.effects.calls)
    why = (
        rf"the kernel does not return from changing PCI function {GPU}: process \d+ has been writing '{GPU}' to .*/bind"
    )
    for call in (harness.driver.prepare, harness.driver.unprepare):
        with pytest.raises(RetriableError, match=why):
            call(harness.prepared(asked))
    harness.driver.restart()
    with pytest.raises(RetriableError, match=why):
        harness.driver.unprepare(harness.prepared(asked))
    assert len(harness.effects.calls) == calls


@pytest.mark.parametrize("file", ["vfio-pci/bind", "nvidia/unbind"])
def test_the_gpu_can_be_used_again_when_the_kernel_has_returned(make_vms, file):
    harness = make_vms("L4")
    asked = harness.driver.allocate(claim(vm()))
    harness.effects.hang_write(file, GPU)
    with pytest.raises(RetriableError, match="did not return"):
        harness.driver.prepare(asked)
    harness.effects.release()
    harness.driver.prepare(harness.prepared(asked))
    assert driver(harness) == "vfio-pci"
    harness.driver.unprepare(harness.prepared(asked))
    harness.driver.assert_clean()
    assert driver(harness) == "nvidia"


def test_a_gpu_whose_return_to_its_driver_hangs_is_restored_later(make_vms):
    harness = make_vms("L4", "L4")
    prepared = harness.driver.prepare(claim(at(GPU)))
    harness.effects.hang_write("nvidia/bind", GPU)
    for why in ("did not return", "does not return"):
        with pytest.raises(RetriableError, match=why):
            harness.driver.unprepare(prepared)
    harness.driver.prepare(claim(at(OTHER)))
    harness.effects.release()
    harness.driver.unprepare(prepared)
    assert driver(harness) == "nvidia"


# -- its record


def test_a_gpu_of_a_claim_without_state_is_restored_at_the_next_claim(make_vms):
    harness = make_vms("L4", "L4")
    lost = harness.driver.prepare(claim(vm()))
    next(harness.driver.data.glob("claims/*.json")).unlink()
    harness.driver.restart()
    harness.driver.cluster.claims.pop(lost.ref.uid)
    kept = harness.driver.prepare(claim(vm()))
    harness.driver.prepare(claim("gpu"))
    harness.driver.unprepare(kept)
    assert {driver(harness, f"0000:1{bus}:00.0") for bus in (0, 1)} == {"nvidia"}
    assert not list(harness.node.path("/s/gpus").rglob("record.json"))


def test_it_keeps_its_product_name_while_it_is_bound_to_vfio(make_vms):
    harness = make_vms("L4", "L4")
    set_driver(harness, "vfio-pci", "0000:11:00.0")
    harness.memory.unbind(harness.memory.gpus[1].uuid)
    prepared = harness.driver.prepare(claim(vm(where='device.attributes["gpu.nvidia.com"].productName == "NVIDIA L4"')))
    assert prepared.names == ["gpu-vfio-0"]
    harness.memory.unbind(harness.memory.gpus[0].uuid)
    harness.driver.discover()
    products = {name: device.attributes.get("productName") for name, device in harness.driver.devices.items()}
    assert products == {"gpu-vfio-0": "NVIDIA L4", "gpu-vfio-1": None}


@pytest.mark.parametrize("word", ["0", "*L4*", "uuid"])
def test_an_allowed_gpu_stays_published_while_it_is_bound_to_vfio(make_gpus, word):
    harness = make_gpus("L4", passthrough=True)
    allowed = harness.memory.gpus[0].uuid if word == "uuid" else word
    harness.settings = harness.settings.model_copy(update={"allow": (allowed,)})
    harness.driver.restart()
    prepared = harness.driver.prepare(claim(vm()))
    harness.memory.unbind(harness.memory.gpus[0].uuid)
    harness.driver.discover()
    assert list(harness.driver.devices) == prepared.names
