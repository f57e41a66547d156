"""The real Helm, which `make helm` builds from its Go module; tests that need it are skipped without it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from dra_sdk.tools.manifests import CHART, RELEASE
from tests.cluster.harness.cache import Cache
from tests.cluster.harness.helm import helm_path

JSON = dict[str, Any]


def find_helm() -> Path | None:
    helm = helm_path(Cache.from_env())
    return helm if helm.is_file() else None


def helm_objects(helm: Path, values: JSON, folder: Path, *flags: str) -> dict[tuple[str, str], JSON]:
    """What `helm template` makes of the chart, by kind and name; `flags` are those of Helm."""
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    command = [helm, "template", RELEASE, CHART, "--namespace", RELEASE, "--values", file, *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    objects = [document for document in yaml.safe_load_all(done.stdout) if document]
    return {(manifest["kind"], manifest["metadata"]["name"]): manifest for manifest in objects}
