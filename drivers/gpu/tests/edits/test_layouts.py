"""Without the container toolkit, loaders find the driver's libraries: from any layout of hosts, in any distribution.

The loaders' default directories are those in the table of `edits.libraries`. Two loaders are really run: that of this
machine, and one that searches `/lib64` as those of RHEL, UBI, Fedora and SUSE do (Debian's `libc6-amd64-i386-cross`).
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from dra_driver_gpu.edits.driver_files import driver_edits
from dra_driver_gpu.nvml.real.library import find_library
from dra_driver_gpu.testing.harness import GpuHarness

from dra_sdk.hardware.host_paths import file_below, follow
from dra_sdk.testing import claim

VERSION = "580.95.05"
TRIPLET = f"{platform.machine()}-linux-gnu"
WRITTEN = "usr/lib/x86_64-linux-gnu"  # where a node made of files has the driver's libraries
STORE = "/nix/store/2-nvidia-x11/lib"


@dataclass(frozen=True)
class Distribution:
    """A container image: its links, and the directories that its loader searches without a cache."""

    searched: tuple[str, ...]
    links: Mapping[str, str] = field(default_factory=dict)


DEBIAN = (f"lib/{TRIPLET}", f"usr/lib/{TRIPLET}", "lib", "usr/lib")
MERGED = {"lib": "usr/lib", "lib64": "usr/lib64"}
DISTRIBUTIONS = {
    "debian": Distribution(DEBIAN, MERGED),
    "ubuntu before the merge of /usr": Distribution(DEBIAN),
    "ubi": Distribution(("lib64", "usr/lib64"), MERGED),
    "suse before the merge of /usr": Distribution(("lib64", "usr/lib64")),
    "arch": Distribution(("usr/lib",), {"lib": "usr/lib", "lib64": "usr/lib", "usr/lib64": "lib"}),
}
MUSL = Distribution(("lib", "usr/local/lib", "usr/lib"), {"lib": "usr/lib"})
HOSTS = {
    "debian": ("/", "usr/lib/x86_64-linux-gnu"),  # and Ubuntu
    "rhel": ("/", "usr/lib64"),
    "driver container": ("/run/nvidia/driver", "usr/lib64"),
    "container-optimized os": ("/home/kubernetes/bin/nvidia", "lib64"),
    "talos": ("/", "usr/local/glibc/usr/lib"),
    "bottlerocket": ("/", "x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla"),
    "nixos": ("/", STORE),
    "nixos with one package": ("/", STORE),
}
PROGRAMS = {
    "bottlerocket": "x86_64-bottlerocket-linux-gnu/sys-root/usr/libexec/nvidia/tesla/bin",
    "nixos": "nix/store/3-nvidia-x11-bin/bin",
}
Node = Callable[[str], GpuHarness]


@pytest.fixture
def host(make_gpus: Callable[..., GpuHarness]) -> Node:
    """A node with the layout of this host, without the container toolkit."""

    def make(name: str) -> GpuHarness:
        driver_root, directory = HOSTS[name]
        harness = make_gpus("L4", driver_root=driver_root)
        written = harness.gpus.driver_root / WRITTEN
        place = harness.gpus.driver_root / directory.lstrip("/")
        if place != written:
            place.parent.mkdir(parents=True, exist_ok=True)
            written.rename(place)
        if name == "nixos":
            harness.node.link("/run/opengl-driver", "/nix/store/1-graphics-drivers")
            for file in place.iterdir():
                harness.node.link(f"/nix/store/1-graphics-drivers/lib/{file.name}", f"{STORE}/{file.name}")
        if name == "nixos with one package":  # Nix then links the whole directory
            harness.node.link("/run/opengl-driver", "/nix/store/1-graphics-drivers")
            harness.node.link("/nix/store/1-graphics-drivers/lib", STORE)
        (harness.gpus.driver_root / "usr/bin/nvidia-cdi-hook").unlink()
        return harness

    return make


def mounted(harness: GpuHarness, image: Distribution, tree: Path) -> Path:
    """The file system of a container of this image with the mounts of a claim for a GPU."""
    for path, target in image.links.items():
        link = tree / path
        link.parent.mkdir(parents=True, exist_ok=True)
        (link.parent / target).mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    for path, mount in harness.driver.prepare(claim("gpu")).container().mounts.items():
        target = follow(tree, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(harness.node.path(mount["source"]), target)
    return tree


@pytest.mark.parametrize("image", DISTRIBUTIONS)
@pytest.mark.parametrize("name", HOSTS)
def test_the_loader_of_a_distribution_finds_the_libraries_of_any_host(
    host: Node, tmp_path: Path, name: str, image: str
) -> None:
    tree = mounted(host(name), DISTRIBUTIONS[image], tmp_path / "container")
    for library in ("libcuda.so.1", "libnvidia-ml.so.1", f"libnvidia-ptxjitcompiler.so.{VERSION}"):
        assert any(file_below(tree, Path(directory, library)) for directory in DISTRIBUTIONS[image].searched), library


def test_the_loader_of_alpine_does_not_find_them_and_could_not_load_them(host: Node, tmp_path: Path) -> None:
    tree = mounted(host("debian"), MUSL, tmp_path / "container")
    assert not any(file_below(tree, Path(directory, "libcuda.so.1")) for directory in MUSL.searched)


@pytest.mark.parametrize("name", HOSTS)
def test_each_path_in_a_container_is_mounted_once_and_from_a_file(host: Node, name: str) -> None:
    harness = host(name)
    mounts = driver_edits(harness.nvidia_node, VERSION).mounts
    targets = [mount.container_path for mount in mounts]
    assert len(targets) == len(set(targets))
    assert all(harness.node.path(mount.host_path).is_file() for mount in mounts)


@pytest.mark.parametrize("name", HOSTS)
def test_nvml_is_found(host: Node, name: str) -> None:
    root = host(name).gpus.driver_root
    assert Path(find_library(root)).resolve() == root / HOSTS[name][1].lstrip("/") / f"libnvidia-ml.so.{VERSION}"


@pytest.mark.parametrize("name", HOSTS)
def test_with_the_toolkit_libraries_are_mounted_where_the_host_has_them(host: Node, name: str) -> None:
    harness = host(name)
    harness.node.file("/usr/bin/nvidia-cdi-hook", "#!/bin/sh\n")
    container = harness.driver.prepare(claim("gpu")).container()
    directory = f"/{HOSTS[name][1].lstrip('/')}"
    assert f"{directory}/libcuda.so.{VERSION}" in container.mounts
    assert container.env["NVIDIA_CTK_LIBCUDA_DIR"] == directory
    folders = [hook["args"][2:] for hook in container.hooks["createContainer"] if hook["args"][1] == "update-ldcache"]
    assert folders == [["--folder", directory]]


@pytest.mark.parametrize("name", PROGRAMS)
def test_nvidia_smi_runs_on_the_host(host: Node, config: Callable[..., dict[str, object]], name: str) -> None:
    """A time slice is set by nvidia-smi."""
    harness = with_programs(host(name), name)
    slow = config("GpuConfig", strategy="TimeSlicing", timeSlicingConfig={"interval": "Long"})
    harness.driver.prepare(claim("gpu", config=slow))
    assert harness.nvidia_node.program("nvidia-smi") == harness.node.path(f"/{PROGRAMS[name]}/nvidia-smi")
    assert [call.split()[1] for call in harness.effects.calls] == ["nvidia-smi"]


@pytest.mark.parametrize(("name", "mounted"), [("bottlerocket", True), ("nixos", False)])
def test_a_container_gets_nvidia_smi_if_it_can_run_there(host: Node, name: str, mounted: bool) -> None:
    harness = with_programs(host(name), name)
    mounts = harness.driver.prepare(claim("gpu")).container().mounts
    programs = {path: mount["source"] for path, mount in mounts.items() if path.endswith("nvidia-smi")}
    assert programs == ({"/usr/bin/nvidia-smi": f"/{PROGRAMS[name]}/nvidia-smi"} if mounted else {})


def with_programs(harness: GpuHarness, name: str) -> GpuHarness:
    """The node with the driver's programs where this host has them."""
    written = harness.gpus.driver_root / "usr/bin"
    place = harness.gpus.driver_root / PROGRAMS[name]
    place.parent.mkdir(parents=True, exist_ok=True)
    written.rename(place)
    if name == "nixos":
        harness.node.link("/run/current-system", "/nix/store/4-system")
        for file in place.iterdir():
            harness.node.link(f"/nix/store/4-system/sw/bin/{file.name}", f"/{PROGRAMS[name]}/{file.name}")
    return harness


PROGRAM = """
#include <dlfcn.h>
int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(void) = library ? (int (*)(void))dlsym(library, "cuInit") : 0;
    return init ? init() : 1;
}
"""


LIB64 = Path("/usr/i686-linux-gnu/lib64")
"""Debian's C library for programs of 64 bits on systems of 32: its loader searches the directories that RHEL's does."""


@pytest.fixture(params=["this machine", "lib64"])
def c_library(request: pytest.FixtureRequest) -> Callable[[Path, Path], None]:
    """Puts a loader and the C library that a program needs into a container's tree."""

    def of_this_machine(program: Path, tree: Path) -> None:
        needed = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout.split()
        for path in filter(os.path.isabs, needed):
            target = follow(tree, path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)

    def in_lib64(_program: Path, tree: Path) -> None:
        shutil.copytree(LIB64, tree / "usr/lib64", dirs_exist_ok=True)

    if request.param == "this machine":
        return of_this_machine
    if not LIB64.is_dir():
        pytest.skip("needs Debian's libc6-amd64-i386-cross, which .ci/run installs")
    return in_lib64


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
@pytest.mark.parametrize("name", HOSTS)
def test_a_real_loader_loads_libcuda(
    host: Node, c_library: Callable[[Path, Path], None], tmp_path: Path, name: str
) -> None:
    """In a tree with the loader and its C library and nothing else, without LD_LIBRARY_PATH."""
    harness = host(name)
    build = tmp_path / "build"
    build.mkdir()
    compile_c(build / "library.c", "int cuInit(void) { return 42; }\n", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    shutil.copy(build / "library", harness.gpus.driver_root / HOSTS[name][1].lstrip("/") / f"libcuda.so.{VERSION}")
    compile_c(build / "program.c", PROGRAM)
    merged = {path: target for path, target in MERGED.items() if Path("/", path).is_symlink()}
    tree = tmp_path / "container"
    mounted(harness, Distribution((), merged), tree)
    c_library(build / "program", tree)
    shutil.copy(build / "program", tree / "program")
    assert run_in(tree) == 42
    for path in [*tree.rglob("libcuda*")]:
        path.unlink()
    assert run_in(tree) == 1


def compile_c(source: Path, text: str, *flags: str) -> None:
    source.write_text(text)
    subprocess.run(["gcc", *flags, "-o", source.with_suffix(""), source, "-ldl"], check=True)


def run_in(tree: Path) -> int:
    """The exit status of the program in the container."""
    return subprocess.run(["chroot", tree, "/program"], check=False, env={"PATH": "/usr/sbin:/usr/bin"}).returncode
