"""`dra-sdk new`: it writes what works at once, the same as cookiecutter, and all of it or nothing."""

from __future__ import annotations

import builtins
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from cookiecutter.main import cookiecutter

from dra_sdk.cli.new import KINDS, template_directory
from dra_sdk.hookspecs import DriverHooks
from tests.cli.commands import Run, runner
from tests.distributions import drivers, sdk
from tests.strict import type_errors

ROOT = Path(__file__).parents[2]
HOOKS = ["driver_info", "discover", "prepare", "unprepare", "watch", "device_health"]
OF_CONTAINERS = ["run_pod_sandbox", "stop_pod_sandbox", "create_container", "synchronize", "remove_container"]
FURTHER = [*OF_CONTAINERS, "top", "metrics"]
ALL_NAMES = """
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from threading import Event

from dra_sdk import DeviceHealth, Gauge, HealthStatus
from dra_sdk.nri import Container, ContainerAdjustment, ContainerResources
from dra_sdk import HeldClaim
from dra_sdk.nri import PodSandbox
from dra_sdk.hardware import polling
from dra_sdk.hardware.health import watch
from dra_sdk.hookspecs import DriverHooks
"""
LONGEST = "a" * 28
PROGRAM = """
import resource, sys
from dra_sdk.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
sys.exit(main(["new", "my-driver"]))
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    return runner(capsys)


Bake = Callable[..., Path]


@pytest.fixture
def bake(run: Run, tmp_path: Path) -> Bake:
    """Writes a driver; the folder."""

    def bake(kind: str, name: str = "my-driver", *flags: str) -> Path:
        done = run("new", name, "--kind", kind, *flags)
        assert (done.status, done.err) == (0, "")
        return tmp_path / name

    return bake


def python(folder: Path, *arguments: str) -> str:
    """Run a module in a folder; its output if it fails."""
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr if done.returncode else ""


@pytest.mark.usefixtures("bare_pytest")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_the_tests_of_a_new_driver_pass_at_once(bake: Bake, kind: str) -> None:
    assert python(bake(kind), "pytest", "-q", "-p", "no:cacheprovider") == ""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "domain"), [("my-driver", "example.com"), (LONGEST, f"{'b' * 30}.com")])
def test_a_new_driver_is_formatted_and_has_nothing_that_a_linter_finds(
    bake: Bake, kind: str, name: str, domain: str
) -> None:
    folder = bake(kind, name, "--vendor-domain", domain)
    assert python(folder, "ruff", "check", "--no-cache") == ""
    assert python(folder, "ruff", "format", "--check", "--no-cache") == ""


@pytest.mark.parametrize("kind", KINDS)
def test_the_author_reads_at_most_sixty_lines(bake: Bake, kind: str) -> None:
    """Of the driver, without imports, comments and empty lines."""
    text = (bake(kind) / "my_driver/driver.py").read_text()
    code = re.sub(r"^from \S+ import (?:\(\n[^)]*\)|.*)$", "", text, flags=re.MULTILINE)
    lines = [line for line in code.splitlines() if line.strip() and not line.strip().startswith("#")]
    assert 0 < len(lines) <= 60
    assert len(text.splitlines()) <= 90


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_driver_has_every_hook_at_least_as_a_comment(bake: Bake, kind: str) -> None:
    text = (bake(kind) / "my_driver/driver.py").read_text()
    wanted = HOOKS + (FURTHER if kind == "bare" else [])
    assert re.findall(r"^    (?:# )?def dra_(\w+)", text, re.MULTILINE) == wanted


def test_the_template_has_all_hooks_of_the_sdk() -> None:
    hooks = {name for name in vars(DriverHooks) if name.startswith("dra_")}
    assert {f"dra_{name}" for name in HOOKS + FURTHER} == hooks


@pytest.mark.timeout(300)
def test_the_hooks_that_are_comments_are_right(bake: Bake) -> None:
    """With each `# ` taken away, the driver has the types that `DriverHooks` wants, and the SDK takes it."""
    folder = bake("bare")
    path = folder / "my_driver/driver.py"
    text = path.read_text()
    hooks = re.findall(r"^    # def dra_.*?(?=^    #$|\Z)", text, re.MULTILINE | re.DOTALL)
    assert len(hooks) == len(HOOKS) - 3 + len(FURTHER)
    code = [re.sub("^    # ", "    ", hook, flags=re.MULTILINE) for hook in hooks]
    docstring, _, rest = text.partition("\n\n")
    path.write_text("\n".join([docstring, ALL_NAMES, rest, *code, "", "HOOKS: DriverHooks = MyDriver()", ""]))
    assert type_errors(folder / "my_driver", search=[folder]) == ""
    assert python(folder, "dra_sdk.cli.main", "discover", "my_driver.driver:MyDriver") == ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_takes_the_manifests_and_the_chart_installs_the_driver(bake: Bake, run: Run, kind: str) -> None:
    folder = bake(kind, "dra-driver-fpga", "--vendor-domain", "example.org")
    done = run("validate", folder / "deploy/class.yaml", folder / "deploy/claims.yaml")
    assert (done.status, done.out) == (0, ""), done.err
    rendered = run("manifests", "-f", folder / "deploy/values.yaml")
    assert (rendered.status, rendered.err) == (0, "")
    objects = {(obj["kind"], obj["metadata"]["name"]): obj for obj in yaml.safe_load_all(rendered.out)}
    assert {"ServiceAccount", "ClusterRole", "ValidatingAdmissionPolicy", "DaemonSet"} <= {kind for kind, _ in objects}
    assert "DeviceClass" not in {kind for kind, _ in objects}
    spec = objects["DaemonSet", "dra-dra-driver-fpga"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["args"] == ["run", "dra-driver-fpga"]
    assert container["image"] == "registry.example.com/dra-driver-fpga:0.1.0"
    assert container["securityContext"].get("privileged", False) is (kind not in {"bare", "accelerator"})


def test_names_follow_from_the_name_and_the_domain(bake: Bake, run: Run) -> None:
    folder = bake("file", "dra_driver_fpga", "--vendor-domain", "example.org")
    assert 'NAME = "fpga.example.org"\n' in (folder / "dra_driver_fpga/driver.py").read_text()
    assert 'dra-driver-fpga = "dra_driver_fpga:FpgaDriver"' in (folder / "pyproject.toml").read_text()
    bake("file", "other", "--driver-name", "dra.pizza")
    done = run("new", "third")
    assert done.out == (
        "wrote 19 files into third: driver third.example.com. Now type:\n"
        "  cd third\n  pip install --no-index --no-deps --no-build-isolation -e .\n  pytest\n"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_cookiecutter_makes_the_same_of_the_template(
    bake: Bake, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = bake(kind)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where cookiecutter leaves the hook that it has rendered
    settings = tmp_path / "cookiecutter.yaml"
    settings.write_text(yaml.safe_dump({"cookiecutters_dir": str(tmp_path / "c"), "replay_dir": str(tmp_path / "r")}))
    made = cookiecutter(
        str(template_directory()),
        no_input=True,
        extra_context={"kind": kind},
        output_dir=str(tmp_path / "made"),
        config_file=str(settings),
    )
    assert content(Path(made)) == content(folder)


def content(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["My-Driver"], "name 'My-Driver' is not that of a package: it must have at most 28 characters, "),
        (["../x"], "name '../x' is not that of a package"),
        (["a" * 29], "is not that of a package"),
        (["dra-2x"], "name 'dra-2x' is not that of a package"),
        (["x; import os"], "is not that of a package"),
        (['x"{{ y }}'], "is not that of a package"),
        (["import"], "name 'import' cannot be that of a package: import is a word or module of Python, "),
        (["json"], "name 'json' cannot be that of a package: json is a word or module of Python, "),
        (["dra-sdk"], "name 'dra-sdk' cannot be that of a package: dra_sdk is"),
        (["conftest"], "name 'conftest' cannot be that of a package"),
        (["device_plugin"], "name 'device_plugin' is that of a driver of dra-sdk: choose another one, such as my-"),
        (["fpga", "--vendor-domain", "Example"], "driver name 'fpga.Example' must be a DNS subdomain of at most 63 "),
        (["fpga", "--vendor-domain", "x" * 59], f"driver name 'fpga.{'x' * 59}' must be a DNS subdomain of at most 63"),
        (["fpga", "--driver-name", "fpga..com"], "driver name 'fpga..com' must be a DNS subdomain"),
        (["fpga", "--directory", "nowhere"], "cannot write nowhere/fpga: No such file or directory"),
    ],
    ids=lambda value: value[-1][:20] if isinstance(value, list) else "",
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    run: Run, tmp_path: Path, arguments: list[str], problem: str
) -> None:
    done = run("new", *arguments)
    assert (done.status, done.out, done.err.count("\n")) == (2, "", 1)
    assert problem in done.err
    assert list(tmp_path.iterdir()) == []


def test_no_driver_is_called_like_one_of_ours_or_a_package_that_it_needs(run: Run, tmp_path: Path) -> None:
    """By the name that pip knows, or by that of a module."""
    project = sdk().project
    template = (template_directory() / "{{cookiecutter.name}}/pyproject.toml").read_text()
    needs = [
        *project["dependencies"],
        *(line for extra in ("tools", "testing") for line in project["optional-dependencies"][extra]),
    ]
    needs += re.findall(r'"([a-z]+[>=][^"]*)"', template)
    packages = {re.match(r"[\w-]+", need)[0].lower() for need in needs}  # type: ignore[index]
    assert {"pydantic", "google-re2", "pytest", "hatchling"} <= packages
    modules = {
        module
        for module, of in packages_distributions().items()
        if re.fullmatch("[a-z][a-z0-9_]*", module) and packages.intersection(package.lower() for package in of)
    }
    assert {"yaml", "grpc"} <= modules
    ours = {name for driver in drivers() for name in driver.entry_points["dra_sdk.drivers"]}
    assert {"cpu", "nic"} <= ours
    assert [name for name in sorted(packages | modules | ours) if run("new", name).status != 2] == []
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_kind_is_an_error_that_names_the_kinds(run: Run, tmp_path: Path) -> None:
    done = run("new", "fpga", "--kind", "usb")
    assert done.status == 2
    assert "'usb' is not one of " in done.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_a_folder_that_exists_stays_as_it_is(run: Run, tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "fpga")
    before = (tmp_path / "fpga").lstat().st_ino
    done = run("new", "fpga")
    line = "dra-sdk: fpga exists already: choose another name, or remove it\n"
    assert (done.status, done.err) == (2, line)
    assert list(tmp_path.iterdir()) == [tmp_path / "fpga"]
    assert (tmp_path / "fpga").lstat().st_ino == before


def test_a_disk_that_is_full_leaves_nothing_half_written(tmp_path: Path) -> None:
    """A process of its own may write only two kilobytes into a file."""
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "dra-sdk: cannot write my-driver: File too large\n")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Lets a user type lines on a terminal; the questions."""

    def typed(*lines: str) -> list[str]:
        questions: list[str] = []
        left = iter(lines)

        def answer(question: str) -> str:
            questions.append(question)
            try:
                return next(left)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        monkeypatch.setattr(builtins, "input", answer)
        return questions

    return typed


def test_a_terminal_is_asked_for_what_no_flag_says(run: Run, tmp_path: Path, typed: Callable[..., list[str]]) -> None:
    questions = typed("example.org", "net", "")
    done = run("new", "port")
    assert done.status == 0
    assert "  net         network interfaces, which move into the pod\n" in done.out
    assert questions == [
        "Domain of the vendor, which the driver's name ends with [example.com]: ",
        "Kind of hardware [file]: ",
        "Name of the driver in ResourceSlices and claims [port.example.org]: ",
    ]
    assert "net_devices" in (tmp_path / "port/port/driver.py").read_text()


def test_an_answer_that_is_no_kind_is_an_error(run: Run, tmp_path: Path, typed: Callable[..., list[str]]) -> None:
    typed("", "usb")
    assert run("new", "port").err == "dra-sdk: kind 'usb' must be one of file, accelerator, pci, sriov, net, bare\n"
    assert list(tmp_path.iterdir()) == []


def test_the_end_of_input_means_the_defaults(run: Run, typed: Callable[..., list[str]]) -> None:
    typed()
    assert "driver port.example.com" in run("new", "port").out
