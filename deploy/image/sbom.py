"""Writes a CycloneDX 1.5 list of what a tree contains: Python distributions, and Debian packages of status.d.

`python3 sbom.py TREE FILE`. It reads package metadata alone, so the same tree gives the same bytes: there is no time
and no serial number in it. Source: https://cyclonedx.org/docs/1.5/json.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

JSON = dict[str, Any]
_ARCHITECTURE = re.compile(r"^Architecture: (\S+)$", re.MULTILINE)
_OURS = re.compile(r"dra-sdk|dra-driver-.*")
"""Distributions that are on no index: a stranger could own the name there."""
_VERSION = re.compile(r"^Version: (\S+)$", re.MULTILINE)


def bill(tree: Path) -> JSON:
    """Return the list for a tree with a virtual environment in /opt/dra-sdk."""
    components = sorted([*_python(tree), *_debian(tree)], key=lambda component: str(component["bom-ref"]))
    product = next((component for component in components if component["name"] == "dra-sdk"), None)
    about = {"metadata": {"component": {**product, "type": "application"}}} if product else {}
    parts = [component for component in components if component is not product]
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, **about, "components": parts}


def _python(tree: Path) -> Iterator[JSON]:
    sites = sorted(str(path) for path in tree.glob("opt/dra-sdk/lib/python3*/site-packages"))
    for distribution in distributions(path=sites):
        name = re.sub(r"[-_.]+", "-", distribution.metadata["Name"]).lower()
        kind = "generic" if _OURS.fullmatch(name) else "pypi"
        reference = f"pkg:{kind}/{name}@{quote(distribution.version)}"
        yield _component(name, distribution.version, reference) | _licence(distribution)


def _licence(distribution: Distribution) -> JSON:
    expression, text = distribution.metadata.get("License-Expression"), distribution.metadata.get("License")
    if expression:
        return {"licenses": [{"expression": expression}]}
    classified = [
        classifier.rpartition(":: ")[2]
        for classifier in distribution.metadata.get_all("Classifier") or ()
        if classifier.startswith("License ::")
    ]
    names = classified or ([text.splitlines()[0][:100]] if text and text.strip() else [])
    return {"licenses": [{"license": {"name": name}} for name in names]} if names else {}


def _debian(tree: Path) -> Iterator[JSON]:
    for file in sorted(tree.glob("var/lib/dpkg/status.d/*")):
        text = file.read_text()
        version, architecture = _VERSION.search(text), _ARCHITECTURE.search(text)
        if version and architecture:
            reference = f"pkg:deb/debian/{file.name}@{quote(version[1])}?arch={architecture[1]}"
            yield _component(file.name, version[1], reference)


def _component(name: str, version: str, reference: str) -> JSON:
    return {"type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference}


if __name__ == "__main__":
    target = Path(sys.argv[2])
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(bill(Path(sys.argv[1])), indent=1) + "\n")
