"""`dra-sdk new NAME`: write a new driver that works: package, tests, manifests, image, CI.

It renders the cookiecutter template `templates/driver` of this project, without network and without cookiecutter. On a
terminal it asks for what the flags leave open. Exit status: 0 the folder is written, 2 nothing is written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from dra_sdk.cli.arguments import Commands
from dra_sdk.cli.output import print_lines
from dra_sdk.cli.packages import require_package
from dra_sdk.errors import SettingsError
from dra_sdk.texts import counted

if TYPE_CHECKING:
    from jinja2 import Environment

INSTALL: Final = "pip install --no-index --no-deps --no-build-isolation -e ."
"""How an author installs the driver; its name is on no index, and a stranger could have it there."""
Answers = dict[str, str]
"""The variables of the template by name."""
KINDS: Final = ("file", "accelerator", "pci", "sriov", "net", "bare")
_TEMPLATE: Final = "templates/driver"
_PROMPTS: Final = "__prompts__"
_FOLDER: Final = "{{cookiecutter.name}}"


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("new", help="write a new driver, with tests and manifests", description=__doc__)
    parser.add_argument("name", metavar="NAME", help="the name of the project, its folder and its package")
    parser.add_argument(
        "--vendor-domain", metavar="DOMAIN", help="what the driver's name ends with (default example.com)"
    )
    parser.add_argument(
        "--kind",
        choices=KINDS,
        help="the hardware: devices with a device node (default), accelerators, PCI functions with settings, virtual "
        "functions of SR-IOV cards, network interfaces, or none",
    )
    parser.add_argument(
        "--driver-name", metavar="NAME", help="the name of the driver (default: that of the project and the domain)"
    )
    parser.add_argument(
        "--directory", type=Path, default=Path(), metavar="DIR", help="where to make the folder (default .)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Ask, check, write, and say how to go on."""
    require_package("new", "jinja2")
    template = template_directory()
    names = ("name", "vendor_domain", "kind", "driver_name")
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    answers = _answers(template, given, ask=sys.stdin.isatty())
    _check(template, answers)
    number = _write(template, answers, arguments.directory)
    folder = arguments.directory / answers["name"]
    print_lines([f"wrote {counted(number, 'file')} into {folder}: driver {answers['driver_name']}. Now type:"])
    print_lines(f"  {line}" for line in (f"cd {folder}", INSTALL, "pytest"))
    return 0


def template_directory() -> Path:
    """Return the template: in the installed package, or at the root of a checkout."""
    package = Path(str(files("dra_sdk")))
    for directory in (package / _TEMPLATE, package.parent / _TEMPLATE):
        if (directory / "cookiecutter.json").is_file():
            return directory
    raise SettingsError(f"{package / _TEMPLATE} is missing: install dra-sdk again")


def _answers(template: Path, given: Mapping[str, str], *, ask: bool) -> Answers:
    """Return all variables of `cookiecutter.json`: those given, then those that are asked for, then the defaults."""
    variables = json.loads((template / "cookiecutter.json").read_text(encoding="utf-8"))
    prompts = variables.pop(_PROMPTS)
    environment = _environment(template)
    answers: Answers = {}
    for name, default in variables.items():
        if isinstance(default, list):
            value = default[0]
        else:
            value = environment.from_string(default).render(cookiecutter=answers)
        if name in given:
            value = given[name]
        elif ask and not name.startswith("_"):
            value = _asked(prompts[name], value)
        if isinstance(default, list) and value not in default:
            raise SettingsError(f"{name} {value!r} must be one of {', '.join(default)}")
        answers[name] = value
    return answers


def _asked(prompt: str | Mapping[str, str], default: str) -> str:
    """Return what the user types; an empty line, or the end of input, is the default."""
    question = prompt
    if not isinstance(prompt, str):
        question = prompt["__prompt__"]
        for choice, meaning in prompt.items():
            if choice != "__prompt__":
                print_lines([f"  {choice:11} {meaning}"])
    try:
        return input(f"{question} [{default}]: ").strip() or default
    except EOFError:
        print()
        return default


def _check(template: Path, answers: Answers) -> None:
    """Raise SettingsError with the sentence of the template's own check, which cookiecutter runs as well."""
    program = _environment(template).get_template("hooks/pre_gen_project.py").render(cookiecutter=answers)
    done = subprocess.run([sys.executable, "-I", "-"], input=program, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SettingsError(done.stderr.strip())


def _write(template: Path, answers: Answers, directory: Path) -> int:
    """Write the folder; the number of its files. It is written beside its place and then renamed, so it is whole.

    SettingsError if there is something at its place, or if it cannot be written.
    """
    target = directory / answers["name"]
    if target.exists() or target.is_symlink():
        raise SettingsError(f"{target} exists already: choose another name, or remove it")
    try:
        with tempfile.TemporaryDirectory(prefix=f".{answers['name']}.", dir=directory) as temporary:
            new = Path(temporary, "new")
            number = _render(template, answers, new)
            new.rename(target)
    except OSError as error:
        raise SettingsError(f"cannot write {target}: {error.strerror}") from error
    return number


def _render(template: Path, answers: Answers, target: Path) -> int:
    """Render each file and its path; the number of files."""
    environment = _environment(template)
    paths = sorted(path for path in (template / _FOLDER).rglob("*") if path.is_file())
    for path in paths:
        name = path.relative_to(template).as_posix()
        parts = environment.from_string(name.partition("/")[2]).render(cookiecutter=answers)
        (target / parts).parent.mkdir(parents=True, exist_ok=True)
        text = environment.get_template(name).render(cookiecutter=answers)
        (target / parts).write_text(text, encoding="utf-8")
    return len(paths)


def _environment(template: Path) -> Environment:
    """Return Jinja as cookiecutter sets it up, which includes parts from the folder `templates`."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 (of the extra)

    options: dict[str, Any] = {"undefined": StrictUndefined, "keep_trailing_newline": True}
    return Environment(loader=FileSystemLoader([template, template / "templates"]), **options)  # noqa: S701 (no HTML)
