"""Refuse what no driver can be called, with one sentence. cookiecutter and `dra-sdk new` run it before they write."""

import keyword
import re
import sys

NAME = {{ cookiecutter.name | tojson }}
PROJECT = {{ cookiecutter.__project | tojson }}
PACKAGE = {{ cookiecutter.__package | tojson }}
CLASS = {{ cookiecutter.__class | tojson }}
DRIVER = {{ cookiecutter.driver_name | tojson }}
LABEL = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
FILES = {"conftest", "deploy", "locks", "machine", "test_driver", "tests", "tree", "wheels"}  # of the project
NEEDED = {  # modules of what the project installs; pip knows some of them under another name
    "dra_sdk", "editables", "google", "google_re2", "grpc", "grpcio", "hatchling", "httptools", "import_linter",
    "importlinter", "jinja2", "kubernetes", "mypy", "mypyc", "packaging", "pip", "pluggy", "prometheus_client", "protobuf",
    "py", "pydantic", "pytest", "pyyaml", "re2", "ruff", "shtab", "trustme", "yaml",
}  # fmt: skip
TAKEN = {*FILES, *NEEDED, *sys.stdlib_module_names}
DRIVERS = {"cpu", "device-plugin", "gpu", "gpu-amd", "memory", "nic"}  # that `dra-sdk run` knows already

if len(NAME) > 28 or not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", NAME) or not CLASS.isidentifier():
    sys.exit(
        f"name {NAME!r} is not that of a package: it must have at most 28 characters, lower-case words joined by `-` or "
        "`_` that begin with a letter, such as my-driver"
    )
if keyword.iskeyword(PACKAGE) or PACKAGE in TAKEN:
    sys.exit(f"name {NAME!r} cannot be that of a package: {PACKAGE} is a word or module of Python, dra-sdk or the tests")
if PROJECT in DRIVERS:
    sys.exit(f"name {NAME!r} is that of a driver of dra-sdk: choose another one, such as my-{PROJECT}")
if len(DRIVER) > 63 or not re.fullmatch(rf"{LABEL}(\.{LABEL})*", DRIVER):
    sys.exit(f"driver name {DRIVER!r} must be a DNS subdomain of at most 63 characters, such as my.example.com")
