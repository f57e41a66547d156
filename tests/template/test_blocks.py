"""Every block of code and commands in README, docs and drivers is run by a test, or has a reason here why not.

`test_how_to.py` and `test_tutorial.py` run all blocks of their pages. The blocks of the other pages are listed below by
their first line.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.template.pages import ROOT, here
from tests.template.shown import commands, listed

RUN_HERE: Final = "run below: the commands in the repository, and the lines that they print"
SHOWN: Final = "tests/template/test_shown.py"
README: Final = "tests/test_readme.py"
DOCS: Final = "tests/test_docs.py"
FILES: Final = f"{DOCS}: all files of the building blocks, with their tests"
OBJECTS: Final = f"{DOCS}: validated as an API server does"
PART: Final = f"{SHOWN}: validated in a whole object, its configuration read by the driver"
ON_CLUSTER: Final = "tests/cluster/test_install_page.py, on a real cluster"
LONG: Final = "not run: a suite of its own, which CI runs"
PLACES: Final = "not run: the files and nodes that it names are the reader's; its arguments are parsed"
PICTURE: Final = "not a command: a drawing"

BLOCKS: Final = {
    "README.md": {
        "make demo": "tests/cli/test_demo.py runs what it calls; `make test` is the suite itself",
        '"""A DRA driver for USB serial ports': README,
        "python3 -m venv ../venv": "`python -m tests.template.newcomer`, with pip's cache",
        "python -c 'from dra_sdk.testing import write_tree": README,
        "dra-sdk new my-driver": "tests/template/test_tutorial.py",
        "from dra_sdk.testing import": README,
    },
    "docs/architecture.md": {" describe": PICTURE},
    "docs/blocks/daemons.md": {"# ": FILES},
    "docs/blocks/health.md": {"# ": FILES},
    "docs/blocks/joined-variables.md": {"# ": FILES},
    "docs/blocks/node-access.md": {"# ": FILES},
    "docs/blocks/pci.md": {"# ": FILES},
    "docs/blocks/readers.md": {"# ": FILES},
    "docs/blocks/recording.md": {"# ": FILES, "dra-sdk capture": DOCS},
    "docs/blocks/records.md": {"# ": FILES},
    "docs/blocks/settings.md": {
        "# ": FILES,
        "logLevel: debug": SHOWN,
        "dra-sdk: unknown environment variable": SHOWN,
    },
    "docs/blocks/shared-mode.md": {
        "# ": FILES,
        "if modes.hold": "tests/hardware/test_shared_mode.py has the same lines in a driver",
    },
    "docs/blocks/testing.md": {"# ": FILES},
    "docs/blocks/vendor-service.md": {"# ": FILES},
    "docs/commands.md": {
        "$ dra-sdk explain docs/examples/pizza.yaml": RUN_HERE,
        "pip install": "tests/distributions.py installs drivers so for `make demo`",
    },
    "docs/concepts.md": {"dra-sdk demo cpu": "tests/cli/test_demo.py"},
    "docs/conformance-results.md": {
        "dra-sdk conformance": "`python -m tests.bench.conformance`, two minutes each; Go drivers need their programs",
        "dra-sdk conformance --command 'env": "the plugin is on the package index",
        "HOST_ROOT=HOST": "`python -m tests.bench.conformance dra.cpu`",
    },
    "docs/conformance.md": {
        "dra-sdk conformance --driver cpu": "tests/cli/test_conformance.py",
        "import pytest": "tests/tools/conformance/test_pytest_plugin.py, with another driver",
    },
    "docs/contributing.md": {"python -m tests.newest": LONG, "make soak": LONG, ".ci/run": LONG},
    "docs/following-kubernetes.md": {
        "make follow": "tests/cluster/follow/test_follow.py tests its parts; a whole run takes half an hour"
    },
    "docs/driver.md": {
        "dra-sdk discover fpga_driver": DOCS,
        "config:": PART,
        "def dra_unprepare(self, claim: HeldClaim) -> None:": "tests/node/prepare/test_undo.py",
        "[project]": "tests/template/test_installed.py builds a package with the same entry point",
    },
    "docs/explain.md": {
        "$ dra-sdk explain": RUN_HERE,
        "from pathlib import Path": SHOWN,
    },
    "docs/index.md": {"dra-sdk new my-driver": "tests/template/test_tutorial.py, with the README's"},
    "docs/install.md": {
        "docker build": ON_CLUSTER,
        "debootstrap": "tests/cluster/test_image builds the same image by buildah",
        "# pinned.yaml": ON_CLUSTER,
        "helm install": ON_CLUSTER,
        "kubectl delete": ON_CLUSTER,
        "drivers:": "test_the_chart_renders_the_values_of_the_page below",
        "kubectl create token": ON_CLUSTER,
        "kubectl get": ON_CLUSTER,
        "dra-sdk drivers --policy cpu": ON_CLUSTER,
        "dra-sdk claims": ON_CLUSTER,
        "# /etc/dra-sdk/kubeconfig": "tests/kube/test_kubeconfig.py",
        "# containerd, /etc/containerd/config.toml": f"{ON_CLUSTER}, without the setting of containerd",
    },
    "docs/settings.md": {"logLevel: debug": "tests/node/runtime/test_settings.py reads the page"},
    "docs/simulate.md": {
        "$ dra-sdk simulate": "tests/cli/test_simulate.py",
        "claims.yaml:12:": SHOWN,
        "# rows.yaml": SHOWN,
    },
    "docs/state.md": {"dra-sdk state": SHOWN, "The undo of claim": "tests/cli/test_state.py, with other steps"},
    "docs/testing.md": {"from dra_sdk.testing": README},
    "docs/top.md": {"$ dra-sdk simulate": RUN_HERE, "$ dra-sdk cpu top": "`make recordings` runs it"},
    "drivers/cpu/PINNING.md": {"devices:": PART},
    "drivers/cpu/README.md": {"apiVersion:": OBJECTS, "requests:": PART, "config:": PART},
    "drivers/gpu/MIGRATION.md": {"apiVersion:": OBJECTS},
    "drivers/gpu/README.md": {"kind: GpuConfig": SHOWN, "apiVersion:": OBJECTS},
    "drivers/gpu/USE-CASES.md": {"dra-sdk simulate": RUN_HERE, "DRA_GPU_DYNAMIC_MIG=true": PLACES},
    "drivers/nic/README.md": {
        "apiVersion:": "drivers/nic/tests/testing/test_examples.py",
        "$ dra-sdk nic top": "drivers/nic/tests/test_picture.py compares the picture",
    },
    "drivers/plugin/README.md": {
        " plugin's pod": PICTURE,
        "volumes:": PART,
        "requests:": PART,
        "drivers:": PART,
        "apiVersion:": "tests/cluster/test_device_plugin.py runs it on the real kubelet",
    },
}


def test_every_block_is_run_or_has_a_reason() -> None:
    known = {(page, start) for page, starts in BLOCKS.items() for start in starts}
    found = {(page, start) for page, line, _ in listed() for start in BLOCKS.get(page, {}) if line.startswith(start)}
    missing = [(page, line) for page, line, _ in listed() if not line.startswith(tuple(BLOCKS.get(page, {})))]
    assert missing == [], "a block that is in no list: let a test run it, and name the test"
    assert found == known, "no page has such a block"


def test_the_tests_that_are_named_exist() -> None:
    reasons = {reason for starts in BLOCKS.values() for reason in starts.values()}
    for path in {path for reason in reasons for path in re.findall(r"[\w/.]*tests/[\w/.]+\.py", reason)}:
        assert (ROOT / path).is_file(), path


RUN: Final = [
    (page, text)
    for page, line, text in listed()
    for start, reason in BLOCKS.get(page, {}).items()
    if reason is RUN_HERE and line.startswith(start)
]


@pytest.mark.timeout(600)  # commands, on a machine with other work
@pytest.mark.parametrize(("page", "text"), RUN, ids=[page for page, _ in RUN])
def test_a_command_prints_what_its_page_shows(page: str, text: str, tmp_path: Path) -> None:
    typed, shown = commands(text, tmp_path)
    output = ""
    for line in typed:
        done = here(line, tmp_path)
        assert done.returncode in {0, 1}, done.stderr
        output += done.stdout
    assert [each for each in shown if each != "…" and each not in output.splitlines()] == []


def test_the_chart_renders_the_values_of_the_page(tmp_path: Path) -> None:
    (values,) = [text for page, line, text in listed() if page == "docs/install.md" and line == "drivers:"]
    (tmp_path / "values.yaml").write_text(values)
    done = here("dra-sdk manifests -f values.yaml", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "LAMPS_COLOUR" in done.stdout
