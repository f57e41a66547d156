"""Makes the archive and the manifest with which krew installs `kubectl dra`.

    python deploy/krew/plugin.py dist/dra_sdk-0.1.0-py3-none-any.whl --homepage URL --uri URL --out build/krew

The archive has the launcher, the wheel and the licence; equal inputs give equal bytes. `--uri` is where it will be
downloaded from. Source of the manifest's fields: krew.googlecontainertools.github.com/v1alpha2, Plugin.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import tarfile
from pathlib import Path
from typing import Any, Final

import yaml

HERE: Final = Path(__file__).parent
LAUNCHER: Final = "kubectl-dra"


def main() -> None:
    """Write the archive and the manifest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--homepage", required=True, metavar="URL")
    parser.add_argument("--uri", required=True, metavar="URL", help="where the archive will be")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    content = archive(arguments.wheel)
    (arguments.out / f"{LAUNCHER}-{version(arguments.wheel)}.tar.gz").write_bytes(content)
    filled = manifest(version(arguments.wheel), arguments.homepage, arguments.uri, content)
    (arguments.out / "dra.yaml").write_text(yaml.safe_dump(filled, sort_keys=False))


def version(wheel: Path) -> str:
    """Return the version of a wheel as krew writes it, such as `v0.1.0`."""
    return f"v{wheel.name.split('-')[1]}"


def archive(wheel: Path) -> bytes:
    """Return the archive with the launcher and the wheel, without times and owners."""
    members = [(HERE / LAUNCHER, 0o755), (HERE.parent.parent / "LICENSE", 0o644), (wheel, 0o644)]
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for path, mode in members:
            content = path.read_bytes()
            about = tarfile.TarInfo(path.name)
            about.size, about.mode = len(content), mode
            tar.addfile(about, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


def manifest(plugin_version: str, homepage: str, uri: str, content: bytes) -> dict[str, Any]:
    """Return the manifest with version, address and digest of the archive."""
    filled: dict[str, Any] = yaml.safe_load((HERE / "dra.yaml").read_text())
    filled["spec"] |= {"version": plugin_version, "homepage": homepage}
    for platform in filled["spec"]["platforms"]:
        platform |= {"uri": uri, "sha256": hashlib.sha256(content).hexdigest()}
    return filled


if __name__ == "__main__":
    main()
