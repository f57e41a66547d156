"""What the image of a new driver installs: ours from its files, the rest by hash, whatever a package index has.

The index is one on loopback. It has our names in versions that pip would prefer, and another file for a package in the
lock. The commands are those of the Containerfile and the CI of `dra-sdk new`.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import subprocess
import threading
import venv
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from dra_sdk.cli.main import main

LINE = re.compile(r"^RUN (.*?)$(?!\n    )", re.MULTILINE | re.DOTALL)
THIRD = "third-party"


def wheel(folder: Path, name: str, version: str, *needs: str, origin: str) -> Path:
    """Writes a wheel whose only module says where it is from."""
    module, folder = name.replace("-", "_"), folder / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{module}-{version}-py3-none-any.whl"
    head = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {need}" for need in needs),
    ]
    files = {
        f"{module}/__init__.py": f"ORIGIN = {origin!r}\n",
        f"{module}-{version}.dist-info/METADATA": "\n".join(head) + "\n",
        f"{module}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = [f"{file},sha256={_digest(text)},{len(text)}" for file, text in files.items()]
    record = f"{module}-{version}.dist-info/RECORD"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**files, record: "\n".join([*rows, f"{record},,"]) + "\n"}.items():
            archive.writestr(file, text)
    return path


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def index(tmp_path: Path) -> Iterator[str]:
    """The URL of an index with all our names, by a stranger."""
    folder = tmp_path / "index"
    for version in ("0.1.99", "99.0"):
        wheel(folder, "dra-sdk", version, origin="stranger")
        wheel(folder, "my-driver", version, origin="stranger")
    wheel(folder, THIRD, "1.0", origin="index")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Build:
    """The folder of a new driver, and an environment in which the commands of its Containerfile run."""

    def __init__(self, folder: Path, index: str) -> None:
        self.folder = folder / "my-driver"
        self.wheels = self.folder / "wheels"
        self._install, self._environment = folder / "install", folder / "venv"
        self._variables = {"PIP_INDEX_URL": index, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_CONFIG_FILE": os.devnull}
        venv.create(self._environment, with_pip=True)
        self.wheels.mkdir()
        self.lock(folder / "index" / THIRD / "third_party-1.0-py3-none-any.whl")

    def lock(self, file: Path) -> None:
        """Locks the only third-party package to this file."""
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        (self.folder / "locks/sdk.txt").write_text(f"{THIRD}==1.0 --hash=sha256:{digest}\n")

    def own(self, name: str, *needs: str) -> None:
        """Makes one of our wheels, below wheels/ itself."""
        made = wheel(self._install, name, "0.1.0", *needs, origin="ours")
        made.rename(self.wheels / made.name)

    def run(self) -> subprocess.CompletedProcess[str]:
        """Copies and runs what the Containerfile says."""
        text = (self.folder / "Containerfile").read_text()
        self._install.mkdir(exist_ok=True)
        (sources,) = re.findall(r"^COPY (.*) /install/$", text, re.MULTILINE)
        in_context = (self.folder / ".dockerignore").read_text().splitlines()
        for source in sources.split():
            assert f"!{source.partition('/')[0]}" in in_context
            path = self.folder / source
            for file in path.iterdir() if path.is_dir() else [path]:
                (self._install / file.name).write_bytes(file.read_bytes())
        (command,) = LINE.findall(text)
        return self.shell(command.replace("\\\n", " ").replace("/install", str(self._install)))

    def shell(self, command: str) -> subprocess.CompletedProcess[str]:
        """Runs a command with the environment's pip, which knows the index alone."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
        variables |= {**self._variables, "PATH": f"{self._environment / 'bin'}:{os.environ['PATH']}"}
        return subprocess.run(
            ["sh", "-c", command], cwd=self.folder, env=variables, capture_output=True, text=True, check=False
        )

    def origins(self) -> dict[str, str]:
        """Where each package that is installed is from."""
        files = (self._environment / "lib").glob("python*/site-packages/*/__init__.py")
        found = {file.parent.name: re.findall("^ORIGIN = '(.*)'$", file.read_text()) for file in files}
        return {name: origin[0] for name, origin in found.items() if origin}


@pytest.fixture
def build(tmp_path: Path, index: str, monkeypatch: pytest.MonkeyPatch) -> Build:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "my-driver"]) == 0
    return Build(tmp_path, index)


def test_the_image_gets_our_wheels_and_not_those_of_a_stranger(build: Build) -> None:
    build.own("dra-sdk", THIRD)
    build.own("my-driver", "dra-sdk>=0.1,<0.2")
    done = build.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert build.origins() == {"dra_sdk": "ours", "my_driver": "ours", "third_party": "index"}


def test_without_our_wheel_the_image_is_not_built(build: Build) -> None:
    build.own("my-driver", "dra-sdk>=0.1,<0.2")
    done = build.run()
    assert done.returncode
    assert "No matching distribution found for dra-sdk" in done.stderr
    assert "dra_sdk" not in build.origins()


def test_a_package_that_is_not_the_locked_one_is_refused(build: Build, tmp_path: Path) -> None:
    build.lock(wheel(tmp_path / "earlier", THIRD, "1.0", origin="earlier"))
    build.own("dra-sdk", THIRD)
    done = build.run()
    assert done.returncode
    assert "THESE PACKAGES DO NOT MATCH THE HASHES" in done.stderr
    assert build.origins() == {}


def test_ci_gets_our_wheel_too(build: Build) -> None:
    build.own("dra-sdk")
    text = (build.folder / ".github/workflows/ci.yaml").read_text()
    (command,) = re.findall(r"^ +- run: (pip .*dra_sdk-.*?)(?: #.*)?$", text, re.MULTILINE)
    assert build.shell(command).returncode == 0
    assert build.origins() == {"dra_sdk": "ours"}


def test_locks_are_those_of_the_sdk_and_the_base_image_has_no_default(build: Build) -> None:
    text = (build.folder / "Containerfile").read_text()
    assert "\nARG BASE\nFROM ${BASE}\n" in text
    for name in ("tools", "build", "dev"):
        locked = (build.folder / f"locks/{name}.txt").read_text()
        assert locked == (Path(__file__).parents[2] / f"deploy/lock/{name}.txt").read_text()
        assert "--hash=sha256:" in locked
