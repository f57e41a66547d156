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
    assert len(container.mounts) == 1  # the metadata; a virtual machine has its own driver
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


@pytest.mark.parametrize("name", ["vfio-pci", "l4_vfio_pci"])
def test_a_gpu_that_an_operator_bound_to_vfio_stays_bound(make_vms, name):
    rig = make_vms("L4", "L4")
    set_driver(rig, name)
    rig.node.file("/dev/vfio/20")
    prepared = rig.driver.prepare(claim(vm()))
    assert prepared.names == ["gpu-vfio-0"]
    rig.driver.unprepare(prepared)
    assert driver(rig) == name
    assert rig.effects.calls == []


@pytest.mark.parametrize("before", ["nouveau", None])
def test_its_driver_and_override_are_restored(make_vms, before):
    rig = make_vms("L4")
    for file in ("bind", "unbind"):
        rig.node.file(f"/sys/bus/pci/drivers/nouveau/{file}")
    set_driver(rig, before)
    rig.node.file(f"/sys/bus/pci/devices/{GPU}/driver_override", "nouveau\n")
    prepared = rig.driver.prepare(claim(vm()))
    assert driver(rig) == "vfio-pci"
    rig.driver.unprepare(prepared)
    assert driver(rig) == before
    assert rig.node.path(f"/sys/bus/pci/devices/{GPU}/driver_override").read_text() == "nouveau\n"


def test_its_audio_function_is_bound_with_it(make_vms):
    rig = make_vms("L4")
    audio = "0000:10:00.1"
    function(rig, audio, "0x040300", 20, "snd_hda_intel")
    prepared = rig.driver.prepare(claim(vm()))
    assert (driver(rig), driver(rig, audio)) == ("vfio-pci", "vfio-pci")
    rig.driver.unprepare(prepared)
    assert (driver(rig), driver(rig, audio)) == ("nvidia", "snd_hda_intel")


def test_another_function_in_its_iommu_group_is_an_error(make_vms):
    rig = make_vms("L4")
    function(rig, "0000:12:00.0", "0x020000", 20, "mlx5_core")
    with pytest.raises(PermanentError, match=r"0000:12:00.0 with driver mlx5_core is in the same IOMMU group 20"):
        rig.driver.prepare(claim(vm()))
    assert driver(rig) == "nvidia"


@pytest.mark.parametrize(("name", "class_code"), [("pcieport", "0x060400"), ("pci-stub", "0x020000")])
def test_a_function_without_dma_may_be_in_its_iommu_group(make_vms, name, class_code):
    rig = make_vms("L4")
    function(rig, "0000:12:00.0", class_code, 20, name)
    rig.driver.prepare(claim(vm()))
    assert driver(rig) == "vfio-pci"


def test_a_bridge_whose_driver_may_do_dma_is_an_error(make_vms):
    """As the kernel decides (tests/lab): VFIO refuses the whole group."""
    rig = make_vms("L4")
    function(rig, "0000:12:00.0", "0x060400", 20, "shpchp")
    with pytest.raises(PermanentError, match=r"0000:12:00.0 with driver shpchp is in the same IOMMU group 20"):
        rig.driver.prepare(claim(vm()))


def test_a_gpu_with_virtual_functions_is_an_error(make_vms):
    rig = make_vms("L4")
    rig.node.file(f"/sys/bus/pci/devices/{GPU}/sriov_totalvfs", "4\n")
    rig.node.link(f"/sys/devices/pci0000:0f/{GPU}/virtfn0", "../0000:10:00.4")
    with pytest.raises(PermanentError, match="has 1 virtual functions"):
        rig.driver.prepare(claim(vm()))


def test_processes_that_have_the_gpu_open_are_waited_for_and_named(make_vms):
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


def test_the_unbind_lock_of_the_driver_is_taken_first(make_vms):
    rig = make_vms("L4")
    lock = rig.node.file(f"/proc/driver/nvidia/gpus/{GPU}/unbindLock", "0\n")
    rig.driver.prepare(claim(vm()))
    assert rig.effects.calls[0] == f"write proc/driver/nvidia/gpus/{GPU}/unbindLock"
    assert lock.read_text().strip() == "1"


@pytest.mark.parametrize("there", [True, False])
def test_the_kernel_module_is_loaded_if_it_is_missing(make_vms, there):
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


def test_a_node_whose_gpus_are_all_bound_to_vfio_needs_no_driver(make_vms):
    rig = make_vms("L4", nvml=RealNvml)
    set_driver(rig, "vfio-pci")
    for path in rig.node.path("/usr/lib/x86_64-linux-gnu").glob("libnvidia-ml*"):
        path.unlink()
    assert list(rig.driver.devices) == ["gpu-vfio-0"]
    rig.node.file("/dev/vfio/20")
    rig.driver.unprepare(rig.driver.prepare(claim(vm())))


def test_a_gpu_with_mig_devices_is_not_allocated(make_vms):
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


def test_it_is_the_published_gpu_although_indices_have_shifted(make_vms):
    rig = make_vms("L4", "L4", "L4")
    where = 'device.attributes["resource.kubernetes.io"].pciBusID == "0000:11:00.0"'
    asked = rig.driver.allocate(claim(vm(where=where)))
    rig.node.path(f"/sys/bus/pci/devices/{GPU}").unlink()
    rig.driver.prepare(rig.prepared(asked))
    assert [driver(rig, f"0000:1{bus}:00.0") for bus in (1, 2)] == ["vfio-pci", "nvidia"]


def test_the_gpu_of_one_virtual_machine_is_not_given_to_another(make_vms):
    """After another GPU fell off the bus it has another name, which the scheduler takes for a free device."""
    rig = make_vms("L4", "L4")
    where = 'device.attributes["resource.kubernetes.io"].pciBusID == "0000:11:00.0"'
    first = rig.driver.prepare(claim(vm(where=where)))
    rig.node.path(f"/sys/bus/pci/devices/{GPU}").unlink()
    for gpu in rig.memory.gpus:
        rig.memory.unbind(gpu.uuid)
    rig.driver.discover()
    assert (first.names, list(rig.driver.devices)) == (["gpu-vfio-1"], ["gpu-vfio-0"])
    with pytest.raises(RetriableError, match=f"0000:11:00.0 belongs to the virtual machine of claim {first.ref.uid}"):
        rig.driver.prepare(claim(vm(where=where)))
    rig.driver.unprepare(first)
    assert driver(rig, "0000:11:00.0") == "nvidia"


def test_the_functions_of_the_node_are_read_once_for_a_claim(make_vms, monkeypatch):
    rig, read = make_vms("L4", "L4"), []
    asked = rig.driver.allocate(claim(vm(count=2)))
    for module in ("prepare.vfio", "describe.passthrough"):
        monkeypatch.setattr(
            f"dra_driver_gpu.{module}.read_pci_devices", lambda host: read.append(host) or read_pci_devices(host)
        )
    rig.driver.prepare(rig.prepared(asked))
    assert (driver(rig), driver(rig, "0000:11:00.0")) == ("vfio-pci", "vfio-pci")
    assert len(read) == 1


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


# -- processes that use it


def hold(rig, node, pid=4711):
    link = rig.node.path(f"/proc/{pid}/fd/3")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(node)
    return link


@pytest.mark.parametrize(
    "node", ["/dev/dri/card1", "/dev/dri/renderD128", "/host/dev/nvidia0", "/dev/nvidia0 (deleted)"]
)
def test_a_process_that_has_another_of_its_nodes_open_is_waited_for(make_vms, node):
    rig = make_vms("L4")
    asked = rig.driver.allocate(claim(vm()))
    hold(rig, node)
    with pytest.raises(RetriableError, match="by processes 4711"):
        rig.driver.prepare(asked)


def test_processes_that_use_other_gpus_are_not_waited_for(make_vms):
    rig = make_vms("L4")
    for fd, node in enumerate(("/dev/nvidia01", "/dev/nvidiactl", "/dev/dri/card2", "/dev/nvidia1")):
        hold(rig, node, 4711 + fd)
    rig.driver.prepare(claim(vm()))
    assert driver(rig) == "vfio-pci"


def test_processes_are_waited_for_although_nvml_does_not_know_the_gpu(make_vms):
    rig = make_vms("L4")
    asked = rig.driver.allocate(claim(vm()))
    hold(rig, "/dev/nvidia0")
    rig.memory.unbind(rig.memory.gpus[0].uuid)
    with pytest.raises(RetriableError, match="by processes 4711"):
        rig.driver.prepare(rig.prepared(asked))
    assert driver(rig) == "nvidia"


def test_claims_for_other_gpus_do_not_wait_for_its_users(make_gpus):
    rig = make_gpus("L4", "L4", passthrough=True, vfio_seconds=40.0)
    asked = rig.driver.allocate(claim(vm()))
    other = rig.driver.allocate(claim("gpu"))
    link = hold(rig, "/dev/nvidia0")
    waiting = threading.Thread(target=rig.driver.prepare, args=(rig.prepared(asked),))
    waiting.start()
    try:
        wait(lambda: rig.record(GPU).vfio)  # from now on it waits for the process
        prepared = rig.driver.prepare(rig.prepared(other))
        assert (waiting.is_alive(), driver(rig)) == (True, "nvidia")
    finally:
        link.unlink()
        waiting.join()
    assert driver(rig) == "vfio-pci"
    assert prepared.names == ["gpu-1"]


@pytest.mark.parametrize("node", ["/dev/vfio/20", "/dev/vfio/devices/vfio3"])
def test_a_virtual_machine_that_still_runs_is_waited_for_and_named(make_vms, node):
    """Unbinding would block in the kernel until it has ended."""
    rig = make_vms("L4")
    rig.node.file(f"/sys/bus/pci/devices/{GPU}/vfio-dev/vfio3/uevent")
    prepared = rig.driver.prepare(claim(vm()))
    link = hold(rig, node)
    with pytest.raises(RetriableError, match=f"GPU {GPU} was still in use after 0 s, by processes 4711"):
        rig.driver.unprepare(prepared)
    assert driver(rig) == "vfio-pci"
    link.unlink()
    rig.driver.unprepare(prepared)
    assert driver(rig) == "nvidia"


def test_a_group_that_the_kernel_reports_as_busy_is_waited_for(make_vms, monkeypatch):
    """A process may have closed the group and kept the device, which its open files do not show."""
    rig = make_vms("L4")
    prepared = rig.driver.prepare(claim(vm()))
    real = os.open

    def busy(path, *arguments, **more):
        if str(path).endswith("/dev/vfio/20"):
            raise OSError(errno.EBUSY, "busy")
        return real(path, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", busy)
        with pytest.raises(RetriableError, match=f"GPU {GPU} was still in use after 0 s, by a process that closed"):
            rig.driver.unprepare(prepared)
    assert driver(rig) == "vfio-pci"
    rig.driver.unprepare(prepared)
    assert driver(rig) == "nvidia"


# -- unprepare


def test_nvml_is_closed_while_a_driver_changes_so_that_it_finds_the_gpu(make_vms, monkeypatch):
    rig = make_vms("L4")
    users, write = [], rig.effects.write

    def watched(path, text, timeout):
        users.append(rig.memory.users)
        write(path, text, timeout)

    monkeypatch.setattr(rig.effects, "write", watched)
    library = rig.driver.plugin.nvidia_node(rig.node.node).library
    stop = threading.Event()

    def watch():
        while not stop.is_set():
            with library.use():
                while not (stop.is_set() or library.wait_for_close_request(0.05)):
                    pass

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        rig.driver.unprepare(rig.driver.prepare(claim(vm())))
    finally:
        stop.set()
        watcher.join()
    assert users
    assert set(users) == {0}


def test_a_gpu_that_fell_off_the_bus_does_not_fail_the_unprepare(make_vms, caplog):
    rig = make_vms("L4")
    rig.memory.state(rig.memory.gpus[0].uuid).persistence = True
    prepared = rig.driver.prepare(claim(vm()))
    rig.memory.lose(rig.memory.gpus[0].uuid)
    rig.driver.unprepare(prepared)
    rig.driver.assert_clean()
    assert "is gone, so its persistence mode is not restored" in caplog.text


def test_a_driver_that_was_removed_does_not_fail_the_unprepare(make_vms, caplog):
    """It takes the GPU by itself when it is loaded again."""
    rig = make_vms("L4")
    rig.memory.state(rig.memory.gpus[0].uuid).persistence = True
    prepared = rig.driver.prepare(claim(vm()))
    shutil.rmtree(rig.node.path("/sys/bus/pci/drivers/nvidia"))
    rig.memory.fail("nvmlInitWithFlags", ReturnCode.DRIVER_NOT_LOADED, times=100)
    rig.driver.unprepare(prepared)
    rig.driver.assert_clean()
    assert driver(rig) is None
    assert rig.node.path(f"/sys/bus/pci/devices/{GPU}/driver_override").read_text() == "(null)\n"
    assert "stays without driver: the kernel no longer has nvidia" in caplog.text
    assert "its persistence mode is not restored" in caplog.text


def test_the_unbind_lock_is_released_if_binding_fails(make_vms):
    rig = make_vms("L4")
    lock = rig.node.file(f"/proc/driver/nvidia/gpus/{GPU}/unbindLock", "0\n")
    asked = rig.driver.allocate(claim(vm()))
    rig.effects.fail_call(2)  # the unbinding
    with pytest.raises(DraError, match="injected"):
        rig.driver.prepare(asked)
    assert (driver(rig), lock.read_text()) == ("nvidia", "0")


def test_two_gpus_of_one_group_with_their_audio_functions(make_vms):
    rig = make_vms("L4", "L4")
    group = rig.node.path("/sys/bus/pci/devices/0000:11:00.0/iommu_group")
    group.unlink()
    group.symlink_to("/sys/kernel/iommu_groups/20")
    for address in ("0000:10:00.1", "0000:11:00.1"):
        function(rig, address, "0x040300", 20, "snd_hda_intel")
    prepared = rig.driver.prepare(claim(vm(count=2)))
    assert driver(rig, "0000:11:00.1") == "vfio-pci"
    rig.driver.unprepare(prepared)
    assert {driver(rig, f"0000:1{bus}:00.1") for bus in (0, 1)} == {"snd_hda_intel"}


def test_nvidia_smi_sets_persistence_if_its_daemon_is_in_a_driver_container(make_vms, monkeypatch):
    """Our NVML does not find its socket, and the daemon would hold the GPU."""
    rig = make_vms("L4", driver_root="/run/nvidia/driver")
    for path in ("bin/sh", "run/nvidia-persistenced/socket"):
        rig.node.file(f"/run/nvidia/driver/{path}")
    rig.memory.state(rig.memory.gpus[0].uuid).persistence = True
    commands = []
    monkeypatch.setattr(rig.effects, "run", lambda command: commands.append(list(command.argv)) or "")
    rig.driver.unprepare(rig.driver.prepare(claim(vm())))
    root = f"{rig.node.root}/run/nvidia/driver"
    assert commands == [["chroot", root, "/usr/bin/nvidia-smi", "-i", GPU, "-pm", on] for on in ("0", "1")]


# -- a change from which the kernel does not return


OTHER = "0000:11:00.0"


def at(address):
    return vm(where=f'device.attributes["resource.kubernetes.io"].pciBusID == "{address}"')


@pytest.mark.parametrize("file", ["vfio-pci/bind", "nvidia/unbind"])
def test_claims_for_other_gpus_go_on_while_the_kernel_does_not_return(make_vms, file):
    rig = make_vms("L4", "L4", "L4")
    rig.effects.hang_seconds = 1.0
    first, other, plain = (rig.driver.allocate(claim(each)) for each in (at(GPU), at(OTHER), "gpu"))
    rig.effects.hang_write(file, GPU)
    errors = []

    def prepare_first():
        with pytest.raises(RetriableError) as error:
            rig.driver.prepare(rig.prepared(first))
        errors.append(str(error.value))

    waiting = threading.Thread(target=prepare_first)
    waiting.start()
    try:
        wait(rig.effects.pending)  # NVML is closed now
        rig.driver.prepare(rig.prepared(plain))
        rig.driver.prepare(rig.prepared(other))
    finally:
        waiting.join()
    assert driver(rig, OTHER) == "vfio-pci"
    assert f"cannot write '{GPU}' to {rig.node.root}/sys/bus/pci/drivers/{file}: the kernel did not return" in errors[0]


def test_health_goes_on_while_the_kernel_does_not_return(make_vms):
    rig = make_vms("L4", "L4")
    stop, known, unhealthy = threading.Event(), set(), set()

    def watch():
        for report in rig.driver.plugin.dra_device_health(rig.node.node, stop):
            known.update(each.device for each in report)
            unhealthy.update(each.device for each in report if each.status is HealthStatus.UNHEALTHY)

    asked = rig.driver.allocate(claim(at(GPU)))
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        wait(lambda: "gpu-1" in known)
        rig.effects.hang_write("vfio-pci/bind", GPU)
        with pytest.raises(RetriableError, match="did not return"):
            rig.driver.prepare(rig.prepared(asked))
        rig.memory.lose(rig.memory.gpus[1].uuid)
        wait(lambda: "gpu-1" in unhealthy)
    finally:
        stop.set()
        watcher.join()


def test_the_next_call_for_the_gpu_says_so_at_once_and_writes_nothing(make_vms):
    rig = make_vms("L4")
    asked = rig.driver.allocate(claim(vm()))
    rig.effects.hang_write("vfio-pci/bind", GPU)
    with pytest.raises(RetriableError, match="did not return"):
        rig.driver.prepare(asked)
    calls = len(rig.effects.calls)
    why = (
        rf"the kernel does not return from changing PCI function {GPU}: process \d+ has been writing '{GPU}' to .*/bind"
    )
    for call in (rig.driver.prepare, rig.driver.unprepare):
        with pytest.raises(RetriableError, match=why):
            call(rig.prepared(asked))
    rig.driver.restart()
    with pytest.raises(RetriableError, match=why):
        rig.driver.unprepare(rig.prepared(asked))
    assert len(rig.effects.calls) == calls


@pytest.mark.parametrize("file", ["vfio-pci/bind", "nvidia/unbind"])
def test_the_gpu_can_be_used_again_when_the_kernel_has_returned(make_vms, file):
    rig = make_vms("L4")
    asked = rig.driver.allocate(claim(vm()))
    rig.effects.hang_write(file, GPU)
    with pytest.raises(RetriableError, match="did not return"):
        rig.driver.prepare(asked)
    rig.effects.release()
    rig.driver.prepare(rig.prepared(asked))
    assert driver(rig) == "vfio-pci"
    rig.driver.unprepare(rig.prepared(asked))
    rig.driver.assert_clean()
    assert driver(rig) == "nvidia"


def test_a_gpu_whose_return_to_its_driver_hangs_is_restored_later(make_vms):
    rig = make_vms("L4", "L4")
    prepared = rig.driver.prepare(claim(at(GPU)))
    rig.effects.hang_write("nvidia/bind", GPU)
    for why in ("did not return", "does not return"):
        with pytest.raises(RetriableError, match=why):
            rig.driver.unprepare(prepared)
    rig.driver.prepare(claim(at(OTHER)))
    rig.effects.release()
    rig.driver.unprepare(prepared)
    assert driver(rig) == "nvidia"


# -- its record


def test_a_gpu_of_a_claim_without_state_is_restored_at_the_next_claim(make_vms):
    rig = make_vms("L4", "L4")
    lost = rig.driver.prepare(claim(vm()))
    next(rig.driver.data.glob("claims/*.json")).unlink()
    rig.driver.restart()
    rig.driver.cluster.claims.pop(lost.ref.uid)
    kept = rig.driver.prepare(claim(vm()))
    rig.driver.prepare(claim("gpu"))
    rig.driver.unprepare(kept)
    assert {driver(rig, f"0000:1{bus}:00.0") for bus in (0, 1)} == {"nvidia"}
    assert not list(rig.node.path("/s/gpus").rglob("record.json"))


def test_it_keeps_its_product_name_while_it_is_bound_to_vfio(make_vms):
    rig = make_vms("L4", "L4")
    set_driver(rig, "vfio-pci", "0000:11:00.0")
    rig.memory.unbind(rig.memory.gpus[1].uuid)
    prepared = rig.driver.prepare(claim(vm(where='device.attributes["gpu.nvidia.com"].productName == "NVIDIA L4"')))
    assert prepared.names == ["gpu-vfio-0"]
    rig.memory.unbind(rig.memory.gpus[0].uuid)
    rig.driver.discover()
    products = {name: each.attributes.get("productName") for name, each in rig.driver.devices.items()}
    assert products == {"gpu-vfio-0": "NVIDIA L4", "gpu-vfio-1": None}


@pytest.mark.parametrize("word", ["0", "*L4*", "uuid"])
def test_an_allowed_gpu_stays_published_while_it_is_bound_to_vfio(make_gpus, word):
    rig = make_gpus("L4", passthrough=True)
    allowed = rig.memory.gpus[0].uuid if word == "uuid" else word
    rig.settings = rig.settings.model_copy(update={"allow": (allowed,)})
    rig.driver.restart()
    prepared = rig.driver.prepare(claim(vm()))
    rig.memory.unbind(rig.memory.gpus[0].uuid)
    rig.driver.discover()
    assert list(rig.driver.devices) == prepared.names
