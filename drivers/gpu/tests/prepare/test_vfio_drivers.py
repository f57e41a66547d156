"""The VFIO driver of a function: the variant that libvirt would choose, or `vfio-pci`."""

from __future__ import annotations

import pytest
from dra_driver_gpu.describe.passthrough import read_passthrough

from dra_sdk import HardwareError, RetriableError
from dra_sdk.hardware.pci_driver import bind
from dra_sdk.hardware.vfio import is_vfio_driver, vfio_driver
from dra_sdk.testing import claim, request

GPU = "0000:10:00.0"
ALIASES = """# Aliases extracted from modules themselves.
alias pci:v000010DEd*sv*sd*bc03sc02i00* nvidia
alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci
alias vfio_pci:v000010DEd*sv*sd*bc*sc*i* any_vfio_pci
alias vfio_pci:v000010DEd00002342sv*sd*bc*sc*i* nvgrace-gpu-vfio-pci
alias vfio_pci:v000010DEd000027B8sv*sd*bc03sc02i* l4_vfio_pci
alias vfio_pci:v000015B3d0000101Esv*sd*bc*sc*i* mlx5_vfio_pci
"""


@pytest.fixture
def rig(make_gpus):
    made = make_gpus("L4", passthrough=True, vfio_seconds=0.2)
    made.node.file("/proc/sys/kernel/osrelease", "6.12.0-test\n")
    made.node.file("/usr/lib/modules/6.12.0-test/modules.alias", ALIASES)
    made.node.path("/lib").rename(made.node.path("/lib-before"))
    made.node.path("/lib").symlink_to("/usr/lib")  # absolute, as seen from the node
    made.effects.modules["l4_vfio_pci"] = "l4-vfio-pci"
    return made


def identity(rig, product):
    rig.node.file(f"/sys/bus/pci/devices/{GPU}/modalias", f"pci:v000010DEd{product}sv000010DEsd0bc03sc02i00\n")


def driver(rig):
    return rig.node.path(f"/sys/bus/pci/devices/{GPU}/driver").readlink().name


def test_from_nvidia_to_the_variant_and_back(rig):
    prepared = rig.driver.prepare(claim(request("vm", device_class="vfio.gpu.nvidia.com")))
    assert driver(rig) == "l4-vfio-pci"
    assert f"run chroot {rig.node.root} modprobe l4_vfio_pci" in rig.effects.calls
    (gpu,) = read_passthrough(rig.nvidia_node.host)
    assert gpu.bound
    rig.driver.unprepare(prepared)
    assert driver(rig) == "nvidia"


@pytest.mark.parametrize(
    ("product", "module"),
    [("000027B8", "l4_vfio_pci"), ("00002342", "nvgrace_gpu_vfio_pci"), ("00009999", "any_vfio_pci")],
)
def test_the_alias_with_the_fewest_wildcards_is_used(rig, product, module):
    identity(rig, product)
    rig.effects.modules = {module: f"driver-of-{module}"}
    assert vfio_driver(rig.nvidia_node, GPU) == f"driver-of-{module}"
    calls = len(rig.effects.calls)
    assert vfio_driver(rig.nvidia_node, GPU) == f"driver-of-{module}"
    assert len(rig.effects.calls) == calls  # a loaded module is not loaded again


@pytest.mark.parametrize("aliases", ["", "alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\n", None])
def test_without_a_variant_it_is_vfio_pci(rig, aliases):
    file = rig.node.path("/usr/lib/modules/6.12.0-test/modules.alias")
    file.unlink() if aliases is None else file.write_text(aliases)
    assert vfio_driver(rig.nvidia_node, GPU) == "vfio-pci"
    assert rig.effects.calls == []


def test_without_the_release_of_the_kernel_it_is_vfio_pci(rig):
    rig.node.path("/proc/sys/kernel/osrelease").unlink()
    assert vfio_driver(rig.nvidia_node, GPU) == "vfio-pci"


def test_a_variant_without_driver_is_an_error_and_changes_nothing(rig):
    rig.effects.modules.clear()
    with pytest.raises(
        HardwareError, match=f"kernel module l4_vfio_pci has no PCI driver, but is the VFIO variant for {GPU}"
    ):
        rig.driver.prepare(claim(request("vm", device_class="vfio.gpu.nvidia.com")))
    assert driver(rig) == "nvidia"


def test_a_gpu_that_an_operator_bound_to_a_variant_stays_bound(rig):
    bind(rig.nvidia_node, GPU, vfio_driver(rig.nvidia_node, GPU))
    calls = len(rig.effects.calls)
    rig.driver.unprepare(rig.driver.prepare(claim(request("vm", device_class="vfio.gpu.nvidia.com"))))
    assert driver(rig) == "l4-vfio-pci"
    assert len(rig.effects.calls) == calls


def test_a_running_machine_is_waited_for_with_a_variant_too(rig):
    prepared = rig.driver.prepare(claim(request("vm", device_class="vfio.gpu.nvidia.com")))
    rig.node.path("/proc/4242/fd").mkdir(parents=True)
    rig.node.path("/proc/4242/fd/3").symlink_to("/dev/vfio/20")
    with pytest.raises(RetriableError, match=r"was still in use .* by processes 4242"):
        rig.driver.unprepare(prepared)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("vfio-pci", True),
        ("nvgrace_gpu_vfio_pci", True),
        ("mlx5_vfio_pci", True),
        ("nvidia", False),
        ("pci-stub", False),
        ("nvidia-vgpu-vfio", False),
        (None, False),
    ],
)
def test_vfio_drivers_are_known_by_their_names(name, wanted):
    assert is_vfio_driver(name) is wanted
