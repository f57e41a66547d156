"""Prometheus' promtool, which `make promtool` takes from Debian; tests that need it are skipped without it."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.harness.cache import Cache

_PACKAGE = "prometheus"


def find_promtool() -> Path | None:
    """The program, of this machine or of the cache; None if there is none."""
    installed = shutil.which("promtool")
    cached = _cached()
    return Path(installed) if installed else cached if cached.is_file() else None


def rule_test(promtool: Path, rules: Path, tests: list[dict[str, Any]], folder: Path) -> str:
    """What `promtool test rules` finds wrong; empty if nothing."""
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([promtool, "test", "rules", file], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def _cached() -> Path:
    return Cache.from_env().root / "promtool" / "promtool"


def _download() -> None:
    path = _cached()
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as work:
        subprocess.run(["apt-get", "download", _PACKAGE], cwd=work, check=True)
        (package,) = Path(work).glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", package, f"{work}/files"], check=True)
        Path(work, "files/usr/bin/promtool").rename(path)


if __name__ == "__main__":
    if find_promtool() is None:
        _download()
    print(find_promtool())
