"""The plugin of kubectl as krew installs it: archive, manifest and launcher."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).parents[2]
BUILD = REPOSITORY / "deploy" / "krew" / "plugin.py"
WHEEL = "dra_sdk-0.1.0-py3-none-any.whl"
URI = "https://example.com/kubectl-dra.tar.gz"


@pytest.fixture
def built(tmp_path: Path) -> Path:
    (tmp_path / WHEEL).write_bytes(b"wheel")
    build(tmp_path, tmp_path / "out")
    return tmp_path / "out"


def build(folder: Path, out: Path) -> None:
    flags = ("--homepage", "https://example.com", "--uri", URI, "--out", str(out))
    subprocess.run([sys.executable, str(BUILD), str(folder / WHEEL), *flags], check=True, timeout=50)


def test_the_manifest_is_one_that_krew_takes(built: Path) -> None:
    """The rules of krew's validation of v1alpha2: names, semantic version, digests, selectors and paths."""
    found: dict[str, Any] = yaml.safe_load((built / "dra.yaml").read_text())
    assert (found["apiVersion"], found["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", found["metadata"]["name"])
    spec = found["spec"]
    assert set(spec) <= {"version", "homepage", "shortDescription", "description", "caveats", "platforms"}
    assert spec["version"] == "v0.1.0"
    assert "\n" not in spec["shortDescription"]
    assert 0 < len(spec["shortDescription"]) <= 50
    (platform,) = spec["platforms"]
    assert set(platform) <= {"selector", "uri", "sha256", "bin", "files"}
    assert set(platform["selector"]["matchLabels"]) <= {"os", "arch"}
    content = (built / "kubectl-dra-v0.1.0.tar.gz").read_bytes()
    assert platform["sha256"] == hashlib.sha256(content).hexdigest()
    assert platform["uri"] == URI
    with tarfile.open(built / "kubectl-dra-v0.1.0.tar.gz") as tar:
        modes = {each.name: each.mode for each in tar.getmembers()}
    assert modes == {"kubectl-dra": 0o755, "LICENSE": 0o644, WHEEL: 0o644}
    assert platform["bin"] in modes


def test_equal_inputs_give_equal_bytes(built: Path, tmp_path: Path) -> None:
    build(tmp_path, tmp_path / "again")
    assert {each.name: each.read_bytes() for each in built.iterdir()} == {
        each.name: each.read_bytes() for each in (tmp_path / "again").iterdir()
    }


PYTHON3 = """#!/bin/sh
# stands for python3: makes an environment whose pip fails at the first try
mkdir -p "$4/bin"
cat > "$4/bin/python" <<'END'
#!/bin/sh
echo "$@" >> "$LOG"
[ "$(wc -l < "$LOG")" -gt 1 ] || exit 1
printf '#!/bin/sh\\necho ran "$@"\\n' > "$(dirname "$0")/kubectl-dra"
chmod +x "$(dirname "$0")/kubectl-dra"
END
chmod +x "$4/bin/python"
"""


def test_the_launcher_makes_its_environment_once_also_after_a_failure(built: Path, tmp_path: Path) -> None:
    with tarfile.open(built / "kubectl-dra-v0.1.0.tar.gz") as tar:
        tar.extractall(tmp_path / "krew", filter="data")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python3").write_text(PYTHON3)
    (programs / "python3").chmod(0o755)
    (programs / "kubectl-dra").symlink_to(tmp_path / "krew" / "kubectl-dra")
    log = tmp_path / "log"
    environment = {"PATH": f"{programs}:/usr/bin:/bin", "DRA_KREW_HOME": str(tmp_path / "home"), "LOG": str(log)}

    def launch() -> subprocess.CompletedProcess[str]:
        command = ["kubectl-dra", "top", "-n", "a b"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=50)

    assert launch().returncode != 0
    second = launch()
    assert (second.returncode, second.stdout) == (0, "ran top -n a b\n")
    assert "making a Python environment" in second.stderr
    assert (launch().stdout, launch().stderr) == ("ran top -n a b\n", "")
    assert len(log.read_text().splitlines()) == 2
    assert log.read_text().endswith(f"/krew/{WHEEL}[tools]\n")
