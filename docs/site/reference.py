"""The reference, docs/reference: pages that are made of the code. `make reference` writes those that are stale.

A forge shows the files, the site has the same ones, and a test compares them with the code.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import isclass
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from docs.site.command_help import commands
from docs.site.markdown import REFERENCE, ROOT, table
from docs.site.names import hooks, names, public_names
from docs.site.releases import releases
from dra_sdk.loader import load_driver
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.embedded import settings_for

_NOTE: Final = "<!-- Made of the code by `make reference`: change the docstrings instead. -->\n\n"


def metrics() -> str:
    """Return the page of the metrics of a driver that runs: the CPU driver, which has those of NRI too."""
    logging.disable(logging.WARNING)  # that there is no container runtime
    try:
        with EmbeddedCluster() as cluster, DriverProcess(load_driver("cpu"), settings_for(cluster)) as process:
            cluster.kubelet.wait_for_driver("dra.cpu")
            cluster.wait_slices("dra.cpu")
            text = process.metrics.text().decode()
    finally:
        logging.disable(logging.NOTSET)
    rows = [
        (f"`{family.name}{'_total' if family.type == 'counter' else ''}`", family.type, family.documentation)
        for family in text_string_to_metric_families(text)
        if not family.name.endswith("_created") or family.name == "dra_sdk_slices_created"
    ]
    intro = """# Metrics

What a driver serves at `/metrics`, each with the label `driver`, but those of the process (`process_`). Other names
that do not begin with `dra_sdk_` are those of the CPU driver. [Installing a driver](../install.md#watching-it) says
which ones to watch.
"""
    return f"{intro}\n{table(('metric', 'type', 'what'), sorted(rows))}"


def _modules(package: str) -> list[str]:
    """Return the modules of a package with names that the package itself does not have, after the package."""
    directory = Path(import_module(package).__path__[0])
    own = set(import_module(package).__all__)
    paths = [f"{package}.{path.stem}" for path in sorted(directory.glob("*.py")) if not path.stem.startswith("_")]
    return [package, *(path for path in paths if not own.intersection(public_names(import_module(path))))]


PAGES: Final[dict[str, Callable[[], str]]] = {
    "hooks": hooks,
    "model": lambda: names("What a driver imports", "dra_sdk", "dra_sdk.settings", "dra_sdk.nri", "dra_sdk.extensions"),
    "errors": lambda: names("Errors", "dra_sdk.errors", shown=isclass),
    "hardware": lambda: names("Building blocks", *_modules("dra_sdk.hardware")),
    "testing": lambda: names("Tools for tests", *_modules("dra_sdk.testing")),
    "commands": commands,
    "metrics": metrics,
    "releases": releases,
}


def page(name: str) -> str:
    """Return the text of a page, as the code says it now."""
    return _NOTE + PAGES[name]()


def written(directory: Path = REFERENCE) -> Iterator[Path]:
    """Write the pages that are stale or missing, and yield their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in PAGES:
        path, text = directory / f"{name}.md", page(name)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            yield path


if __name__ == "__main__":
    for path in written():
        print(path.relative_to(ROOT))
