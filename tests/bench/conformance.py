"""The conformance kit on the drivers of docs/conformance-results.md, each on the machine that the page names.

    python -m tests.bench.conformance cpu memory       # drivers of this project
    python -m tests.bench.conformance dra.cpu          # a Go driver, whose binary is in the working directory

For each driver it prints the command, and its row of the table of results. A machine is this one, or `HOST`, a tree of
files. dra.cpu, dranet and the network driver need root: they get a mount or network namespace of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from dra_driver_amd.testing import mi300x, write_gpus
from dra_driver_gpu.testing.memory_answers import MemoryAnswers
from dra_driver_gpu.testing.node import GpuNode
from dra_driver_gpu.testing.nvml import MemoryNvml, fake_gpu
from dra_driver_gpu.testing.nvml_stub import StubServer, build_stub
from dra_driver_nic.testing import PrivateNetworks

from dra_sdk.hardware import Host
from dra_sdk.testing.sysfs import regular_machine

HOST: Final = "HOST"
"""Stands for the tree of files in a command."""
_KUBELET: Final = "--kubeconfig={kubeconfig} --hostname-override={node_name} --kubelet-root-dir={kubelet_dir}"
_MOUNTS: Final = "mount --bind $(dirname {nri_socket}) /run/nri && mount --bind {cdi_dir} /run/cdi"
_VETHS: Final = 6


@dataclass(frozen=True)
class Machine:
    """What a driver runs on.

    root: the tree of files; None is this machine.
    settings: what the tree needs beyond the driver's own settings, as environment variables.
    enter: calls a function in the machine's network namespace.
    """

    root: Path | None = None
    settings: dict[str, str] = field(default_factory=dict)
    enter: Callable[[Callable[[], int]], int] = lambda work: work()


MakeMachine = Callable[[Path], Any]
"""Makes a machine in an empty directory: a context manager of a `Machine`."""


@dataclass(frozen=True)
class Run:
    """A driver and its command.

    arguments: of `dra-sdk conformance`; HOST is the tree of files.
    machine: makes the machine.
    settings: the driver's environment variables, which the page shows before the command.
    """

    arguments: str
    machine: MakeMachine
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The command, as the page shows it."""
        words = [f"{name}={value}" for name, value in self.settings.items()]
        return " ".join([*words, "dra-sdk conformance", self.arguments])


@contextmanager
def this_machine(_folder: Path) -> Iterator[Machine]:
    """The machine as it is."""
    yield Machine()


@contextmanager
def many_cpus(folder: Path) -> Iterator[Machine]:
    """Two sockets with 256 CPUs each, and huge pages."""
    machine = replace(regular_machine(sockets=2, cores=128, l3_caches=16), hugepages={2 << 20: 512})
    yield Machine(_booted(machine.write(folder)))


@contextmanager
def nvidia_gpus(folder: Path) -> Iterator[Machine]:
    """An H100 with MIG and an L4, behind a stub of NVML's library."""
    gpus = [fake_gpu("H100-80GB", 0), fake_gpu("L4", 1)]
    node = GpuNode(folder, gpus)
    node.set_all_instances()
    (folder / "stub").mkdir()
    library = f"usr/lib/x86_64-linux-gnu/libnvidia-ml.so.{node.driver_version}"
    build_stub(folder / "stub").replace(node.root / library)
    with StubServer(MemoryAnswers(MemoryNvml(gpus))) as server:
        yield Machine(_booted(node.host), server.environment)


@contextmanager
def amd_gpus(folder: Path) -> Iterator[Machine]:
    """Two MI300X, one of them divided into eight."""
    yield Machine(_booted(write_gpus(folder, [mi300x(), mi300x("cpx", "nps4")])))


@contextmanager
def veths(_folder: Path) -> Iterator[Machine]:
    """A network namespace with six veths."""
    networks = PrivateNetworks()
    try:
        networks.node.ip("link set lo up")
        for number in range(0, _VETHS, 2):
            networks.node.ip(f"link add nic{number} type veth peer name nic{number + 1}")
            networks.node.ip(f"link set nic{number} up", f"link set nic{number + 1} up")
        yield Machine(enter=networks.node.enter)
    finally:
        networks.close()


def _booted(host: Host) -> Path:
    """Add the boot ID, and device nodes that need no privilege to make; the root."""
    for path in [each for each in host.dev.rglob("*") if each.is_file()] if host.dev.is_dir() else []:
        path.unlink()
        os.mkfifo(path)
    boot_id = host.proc / "sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True, exist_ok=True)
    boot_id.write_text("boot\n")
    return host.root


def _in_mounts(command: str) -> str:
    """The option for a driver whose sockets and directories cannot be set."""
    return f"--command 'unshare --mount sh -c \"{_MOUNTS} && exec {command}\"'"


RUNS: Final = {
    "cpu": Run("--driver cpu --nri --host-root HOST", many_cpus),
    "memory": Run("--driver memory --host-root HOST", many_cpus),
    "gpu": Run("--driver gpu --host-root HOST", nvidia_gpus, {"DRA_GPU_DYNAMIC_MIG": "true"}),
    "gpu-amd": Run("--driver gpu-amd --host-root HOST", amd_gpus, {"DRA_AMD_PASSTHROUGH": "true"}),
    "nic": Run("--driver nic", veths, {"DRA_NIC_SOFTWARE": "veth"}),
    "dra-example-driver": Run("--command './dra-example-kubeletplugin --pod-uid={pod_uid}'", this_machine),
    "dra.cpu": Run(
        "--nri --host-root HOST --claim tests/bench/one-cpu.yaml "
        + _in_mounts(f"./dracpu {_KUBELET} --bind-address=127.0.0.1:0"),
        many_cpus,
        {"HOST_ROOT": HOST},
    ),
    "kubernetes-pydra": Run(
        "--command 'env SOCKET_PATH={plugins_dir}/tpu.google.com/plugin.sock "
        "REGISTRATION_SOCKET_PATH={registry_dir}/tpu.google.com-reg.sock CDI_DIR={cdi_dir} NODE_NAME={node_name} "
        "python -m pydra.plugins.tpu.driver'",
        this_machine,
    ),
    "dranet": Run(
        "--nri "
        + _in_mounts(
            f"./dranet {_KUBELET} --bind-address=127.0.0.1:0 --db-path={{kubelet_dir}}/dranet.db "
            "--filter=true --cloud-provider-hint=NONE"
        ),
        veths,
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Run the kit on the drivers that are named; the exit status."""
    parser = argparse.ArgumentParser("python -m tests.bench.conformance", description=__doc__)
    parser.add_argument("drivers", nargs="+", metavar="DRIVER", choices=RUNS, help=", ".join(RUNS))
    for name in parser.parse_args(arguments).drivers:
        print(f"$ {RUNS[name].line}", flush=True)
        with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as folder:  # short, because sockets are in it
            print(row(name, report(RUNS[name], Path(folder))), flush=True)
    return 0


def report(run: Run, folder: Path) -> dict[str, Any]:
    """The report of a run. Raises CalledProcessError if the kit could not check the driver."""
    output = folder / "report.json"
    (folder / "machine").mkdir()
    with run.machine(folder / "machine") as machine:
        root = str(machine.root)
        settings = {name: value.replace(HOST, root) for name, value in run.settings.items()}
        words = [word.replace(HOST, root) for word in shlex.split(run.arguments)]
        command = [sys.executable, "-m", "dra_sdk.cli.main", "conformance", *words, "--quiet", "--json", str(output)]
        call = partial(
            subprocess.run,
            command,
            env={**os.environ, **machine.settings, **settings},
            stdout=sys.stderr,
            check=False,
        )
        status = machine.enter(lambda: call().returncode)
    if status not in {0, 1}:
        raise subprocess.CalledProcessError(status, command)
    found: dict[str, Any] = json.loads(output.read_text())
    return found


def row(name: str, report: dict[str, Any]) -> str:
    """The row of the table of results."""
    score = report["score"]
    failures = [each["id"] for each in report["checks"] if each["status"] == "failed"]
    return f"| `{name}` | {score['must']} | {score['should']} | {', '.join(failures) or '—'} |"


if __name__ == "__main__":
    sys.exit(main())
