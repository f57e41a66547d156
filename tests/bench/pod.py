"""`python -m tests.bench.pod ACCOUNT …`: `dra-sdk …` in a pod whose service account has its files in ACCOUNT.

The variables KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT name the API server, as in any pod.
"""

from __future__ import annotations

import sys
from pathlib import Path

from dra_sdk.kube import in_cluster

if __name__ == "__main__":
    in_cluster.ACCOUNT = Path(sys.argv.pop(1))  # type: ignore[misc]

    from dra_sdk.cli.main import main  # with the account that is set above

    sys.exit(main())
