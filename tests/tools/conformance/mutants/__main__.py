"""The driver as a process of its own: `python -m tests.tools.conformance.mutants NAME [FAULT…]`."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import closing, suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from dra_sdk.kube.client import KubeClient
from dra_sdk.tools.conformance.environment import KitClient, NodeEnvironment
from tests.tools.conformance.mutants.driver import MutantDriver


def main() -> None:
    name, *faults = sys.argv[1:]
    kubeconfig = Path(os.environ["KUBECONFIG"])
    with closing(KitClient(KubeClient.connect(kubeconfig, agent="mutant"))) as api:
        environment = NodeEnvironment(
            api,
            os.environ["NODE_NAME"],
            "default",
            Path(os.environ["KUBELET_REGISTRAR_DIRECTORY_PATH"]),
            Path(os.environ["KUBELET_PLUGINS_DIRECTORY_PATH"]),
            (Path(os.environ["CDI_ROOT"]),),
            kubeconfig,
            nri_socket=Path(os.environ["NRI_SOCKET"]),
        )
        driver = MutantDriver(name, environment, frozenset(faults), os.environ.get("POD_UID", ""))
        stopped: SimpleQueue[None] = SimpleQueue()  # a signal handler must not take the locks of an Event
        signal.signal(signal.SIGTERM, lambda *_: stopped.put(None))
        driver.start()
        print(f"{name} serves", flush=True)
        while not driver.problem:
            with suppress(Empty):
                stopped.get(timeout=0.05)
                break
        driver.stop()


if __name__ == "__main__":
    main()
