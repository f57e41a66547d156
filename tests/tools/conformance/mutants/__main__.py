"""The driver as a process of its own: `python -m tests.tools.conformance.mutants NAME [FAULT…]`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

from dra_sdk.kube.client import KubeClient
from dra_sdk.tools.conformance.api import Api
from dra_sdk.tools.conformance.site import Site
from tests.tools.conformance.mutants.driver import MutantDriver


def main() -> None:
    name, *faults = sys.argv[1:]
    kubeconfig = Path(os.environ["KUBECONFIG"])
    with closing(Api(KubeClient.connect(kubeconfig, agent="mutant"))) as api:
        site = Site(
            api,
            os.environ["NODE_NAME"],
            "default",
            Path(os.environ["KUBELET_REGISTRAR_DIRECTORY_PATH"]),
            Path(os.environ["KUBELET_PLUGINS_DIRECTORY_PATH"]),
            (Path(os.environ["CDI_ROOT"]),),
            kubeconfig,
        )
        driver = MutantDriver(name, site, frozenset(faults), os.environ.get("POD_UID", ""))
        ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        driver.start()
        print(f"{name} serves", flush=True)
        while not ended.is_set() and not driver.problem:
            time.sleep(0.05)
        driver.stop()


if __name__ == "__main__":
    main()
