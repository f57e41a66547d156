"""The generated messages of the kubelet's APIs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = Path("dra_sdk/wire/proto")


def test_the_generator_reproduces_the_files_byte_for_byte(tmp_path):
    pytest.importorskip("grpc_tools", reason="the generator is part of the extra dev")
    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / FOLDER).glob("*.proto"))
    generate = ["-m", "grpc_tools.protoc", "-I.", f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", *sources]
    subprocess.run([sys.executable, *generate], cwd=ROOT, check=True)
    generated = {path.name: path.read_bytes() for path in (tmp_path / FOLDER).iterdir()}
    assert generated == {path.name: path.read_bytes() for path in (ROOT / FOLDER).glob("*_pb2.py*")}
    assert len(generated) == 2 * len(sources)
