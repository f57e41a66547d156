"""A driver's settings: what an operator decides for a node, in environment variables or in a section of a file.

A driver's settings are an ordinary pydantic model, like its opaque configuration (`OpaqueConfig`). The driver names the
class in its attribute `settings_class`; `dra-sdk run` reads the values and makes the driver with them. Everything that
an operator writes is text, which pydantic converts to the type of the field.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError, ValidationInfo
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, ErrorDetails, core_schema

from dra_sdk.errors import DraError, SettingsError
from dra_sdk.model.config import broken_rule
from dra_sdk.texts import closest

log = logging.getLogger(__name__)
SECTION: Final = "driver"
"""The key of the settings file that has the driver's own settings."""
KUBELET_DIR: Final = "/var/lib/kubelet"
"""The kubelet's root directory unless its `--root-dir` names another."""
_PREFIX: Final = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*_")
_RESERVED: Final = "DRA_SDK_"
_SERVICE: Final = re.compile(
    r"_SERVICE_HOST|_SERVICE_PORT(_[A-Z0-9_]+)?|_PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?"
)
"""How variables end that the kubelet sets for each Service of a namespace, unless `enableServiceLinks` is false."""
_RULES: Final = {
    "bool_parsing": "must be true or false",
    "float_parsing": "must be a number",
    "int_parsing": "must be a whole number",
}
_ACCEPTED: Final = {bool: "true or false", int: "whole number", float: "number"}
_LIMITS: Final = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


# -- types of fields; `bool` reads true, false, on, off, yes, no, 1 and 0, and `Literal` is one of its words


@dataclass(frozen=True, slots=True)
class Parsed:
    """Reads a field from text with a function. A value that is not text is checked as any other.

        reserved_cpus: Annotated[CpuSet, Parsed(parse_cpuset, "CPU list")] = frozenset()

    parse: reads the text; raises ValueError or DraError with what it must be.
    accepts: what the documentation says that a user may write.
    """

    parse: Callable[[str], object]
    accepts: str = "text"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Run the function before the checks of the type."""
        return core_schema.no_info_before_validator_function(self._read, handler(source))

    def _read(self, value: object) -> object:
        try:
            return self.parse(value) if isinstance(value, str) else value
        except DraError as error:
            raise ValueError(str(error)) from error


@dataclass(frozen=True, slots=True)
class Seconds:
    """A number of seconds above 0 that has a limit.

        busy_seconds: Annotated[float, Seconds(40, "the kubelet waits 45 for a claim")] = 10.0

    longest: the limit.
    reason: why it must not be more.
    """

    longest: float
    reason: str

    @property
    def accepts(self) -> str:
        """What a user may write."""
        return f"seconds, at most {self.longest:g}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check the limits after the type."""
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def _check(self, value: float) -> float:
        if not 0 < value <= self.longest:
            raise ValueError(f"must be above 0 and at most {self.longest:g} seconds: {self.reason}")
        return value


def split_words(text: str) -> list[str]:
    """Return the words of a list that is separated by commas, without spaces around them and without empty ones."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _host_path(text: str) -> str:
    if not text.startswith("/"):
        raise ValueError("must be an absolute path on the host")
    return "/" + text.strip("/")


@dataclass(frozen=True, slots=True)
class _BelowKubelet:
    """Reads a path of the host; one without a slash at its start is below the kubelet's directory."""

    @property
    def accepts(self) -> str:
        """What a user may write."""
        return "absolute path, or one below the kubelet's directory"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Complete the path before the checks of the type."""
        return core_schema.with_info_before_validator_function(self._read, handler(source))

    def _read(self, value: object, info: ValidationInfo) -> object:
        kubelet_dir = (info.context or {}).get("kubelet_dir", KUBELET_DIR)
        return posixpath.normpath(posixpath.join(kubelet_dir, value)) if isinstance(value, str) else value


HostPath: TypeAlias = Annotated[str, Parsed(_host_path, "absolute path")]
"""An absolute path on the host, without a slash at its end."""
KubeletPath: TypeAlias = Annotated[str, _BelowKubelet()]
"""A path on the host. Without a slash at its start it is below the kubelet's directory, wherever that is:
`Field(default="plugins/lamps.example.com")` is `/var/lib/kubelet/plugins/lamps.example.com` on most nodes."""
CommaSeparated: TypeAlias = Annotated[tuple[str, ...], Parsed(split_words, "words, separated by commas")]
"""Words, separated by commas. For items of another type: `Annotated[frozenset[int], Parsed(split_words, "…")]`."""


# -- the model


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """What a settings file has for the driver.

    path: the file, for messages.
    values: the text of each key in its section; a list is text with commas between its items.
    """

    path: Path
    values: Mapping[str, str] = field(default_factory=dict)


_NO_FILE: Final = SettingsFile(Path())


@dataclass(frozen=True, slots=True)
class SettingDocs:
    """One setting, as the documentation and `--help` show it.

    variable: its environment variable.
    key: its key in the section `driver` of a settings file.
    accepts: what a user may write.
    default: its default as a user would write it; empty for none, None if the setting is required.
    description: what it means.
    """

    variable: str
    key: str
    accepts: str
    default: str | None
    description: str


class DriverSettings(BaseModel):
    """Base of a driver's settings.

    ```python
    class LampSettings(DriverSettings, prefix="DRA_LAMP_"):
        driver_root: HostPath = Field(default="/", description="where the lamps' driver is installed")


    class LampDriver:
        settings_class = LampSettings

        def __init__(self, settings: LampSettings) -> None: ...
    ```

    Here an operator sets the variable `DRA_LAMP_DRIVER_ROOT`, or `driverRoot` in the section `driver` of the file of
    `dra-sdk run --config`. The variable has precedence over the file, and an empty one counts as absent.

    prefix: what the variables begin with; ends with an underscore. Given in the class statement.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False)

    prefix: ClassVar[str] = ""

    def __init_subclass__(cls, prefix: str | None = None, **kwargs: Any) -> None:
        """Take `prefix` from the class statement."""
        super().__init_subclass__(**kwargs)
        cls.prefix = cls.prefix if prefix is None else prefix
        if not cls.prefix:
            raise TypeError(f'settings need a prefix: class {cls.__name__}(DriverSettings, prefix="DRA_LAMP_")')
        if not _PREFIX.fullmatch(cls.prefix) or cls.prefix.startswith(_RESERVED):
            raise TypeError(
                f"{cls.__name__}: prefix {cls.prefix!r} must be words in capitals, each followed by an underscore, "
                f"such as DRA_LAMP_; {_RESERVED} is reserved"
            )

    @classmethod
    def read(
        cls,
        environment: Mapping[str, str] | None = None,
        file: SettingsFile | None = None,
        kubelet_dir: str | Path = KUBELET_DIR,
    ) -> Self:
        """Read the settings from the environment, by default that of the process, and from the section of a file.

        Fields of the type KubeletPath are below `kubelet_dir`.

        Raises SettingsError with every variable and key that is unknown or has an unusable value. Variables that
        Kubernetes sets for a Service are ignored: one that is named like the driver would keep it from starting.
        """
        environment, file = os.environ if environment is None else environment, file or _NO_FILE
        problems = [*cls._unknown(environment, file)]
        given = cls._given(environment, file)
        try:
            settings = cls.model_validate(
                {name: text for name, (_, text) in given.items()}, context={"kubelet_dir": str(kubelet_dir)}
            )
        except ValidationError as error:
            problems += [cls._sentence(detail, given) for detail in error.errors(include_url=False)]
        else:
            if not problems:
                return settings
        raise SettingsError(*problems)

    @classmethod
    def documentation(cls) -> list[SettingDocs]:
        """Return every setting, in the order of the class."""
        return [
            SettingDocs(
                cls._variable(name),
                to_camel(name),
                _accepted(info.annotation, info.metadata),
                None if info.is_required() else _as_text(info.get_default(call_default_factory=True)),
                info.description or "",
            )
            for name, info in cls.model_fields.items()
        ]

    @classmethod
    def markdown(cls) -> str:
        """Return the table of all settings, for a README."""
        rows = [
            (f"`{docs.variable}`", f"`{docs.key}`", docs.accepts, _default_cell(docs.default), docs.description)
            for docs in cls.documentation()
        ]
        lines = ["| " + " | ".join(cell.replace("|", r"\|") for cell in row) + " |" for row in rows]
        head = ["| variable | in a file | value | default | meaning |", "|---|---|---|---|---|"]
        return "\n".join([*head, *lines]) + "\n"

    @classmethod
    def _variable(cls, name: str) -> str:
        """Return the environment variable of a field."""
        return f"{cls.prefix}{name.upper()}"

    @classmethod
    def _given(cls, environment: Mapping[str, str], file: SettingsFile) -> dict[str, tuple[str, str]]:
        """Return where each field is set, and to which text."""
        given = {}
        for name in cls.model_fields:
            variable, key = cls._variable(name), to_camel(name)
            if text := environment.get(variable):
                given[name] = (f"environment variable {variable}", text)
            elif text := file.values.get(key):
                given[name] = (f"setting {SECTION}.{key} of settings file {file.path}", text)
        return given

    @classmethod
    def _unknown(cls, environment: Mapping[str, str], file: SettingsFile) -> Iterator[str]:
        variables = [cls._variable(name) for name in cls.model_fields]
        keys = [to_camel(name) for name in cls.model_fields]
        for name in sorted(environment):
            if not name.startswith(cls.prefix) or name in variables:
                continue
            if _is_of_service(name):
                log.info("environment variable %s is no setting: Kubernetes sets such variables for Services", name)
            else:
                yield f"unknown environment variable {name}{_meant(name, variables, cls.prefix)}"
        for key in file.values:
            if key not in keys:
                yield f"settings file {file.path}: unknown setting {SECTION}.{key}{_meant(key, keys)}"

    @classmethod
    def _sentence(cls, problem: ErrorDetails, given: Mapping[str, tuple[str, str]]) -> str:
        """Return what is wrong with a setting. A problem without a path comes from a check of several settings."""
        rule = _RULES.get(problem["type"]) or broken_rule(problem)
        if not problem["loc"]:
            return f"settings {cls.prefix}…: {rule}"
        name, *inside = map(str, problem["loc"])
        if problem["type"] == "missing":
            return f"environment variable {cls._variable(name)}, or {SECTION}.{to_camel(name)} in a file, is required"
        if name not in given:
            return f"default of {cls.__name__}.{name}: {rule} (is {problem['input']!r})"
        where, text = given[name]
        item = f"{problem['input']!r} " if inside and problem["input"] != text else ""
        return f"{where}={text!r}: {item}{rule}"


def _is_of_service(variable: str) -> bool:
    return any(match.end() == len(variable) for match in _SERVICE.finditer(variable))


def _meant(word: str, known: Sequence[str], prefix: str = "") -> str:
    """Return the known word that is most like this one; the prefix, which all have, makes none alike."""
    choice = closest(word.removeprefix(prefix), [candidate.removeprefix(prefix) for candidate in known])
    return f"; known are {', '.join(known) or 'none'}" if choice is None else f"; did you mean {prefix}{choice}?"


# -- the documentation


def _accepted(annotation: Any, metadata: Iterable[Any]) -> str:
    """Return what a user may write for a type; a class of a field may say so in its own attribute `accepts`."""
    arguments, limits = get_args(annotation), [*metadata]
    if own := [limit.accepts for limit in limits if isinstance(limit, Parsed | Seconds | _BelowKubelet)]:
        return str(own[0])
    if get_origin(annotation) is Annotated:
        return _accepted(arguments[0], arguments[1:])
    if get_origin(annotation) is Literal:
        return " or ".join(map(str, arguments))
    if get_origin(annotation) in {Union, UnionType}:
        return " or ".join(_accepted(argument, limits) for argument in arguments if argument is not NoneType)
    accepts = _ACCEPTED.get(annotation) or str(getattr(annotation, "accepts", "text"))
    return ", ".join([accepts, *_limits(limits)])


def _limits(metadata: Iterable[Any]) -> Iterator[str]:
    for constraint in metadata:
        for name, words in _LIMITS.items():
            if (limit := getattr(constraint, name, None)) is not None:
                yield f"{words} {limit:g}" if isinstance(limit, float) else f"{words} {limit}"


def _as_text(value: Any) -> str:
    """Return a value as a user would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, set | frozenset):
        value = sorted(value)
    if isinstance(value, list | tuple):
        return ",".join(map(_as_text, value))
    return "" if value is None else str(value)


def _default_cell(default: str | None) -> str:
    if default is None:
        return "required"
    return f"`{default}`" if default else ""
