"""How a call of nvidia-ml-py is made: its exceptions become the `NvmlError`s of this package."""

from __future__ import annotations

import ctypes
from enum import IntEnum
from typing import Any, TypeAlias, TypeVar

from dra_driver_gpu.nvml.errors import error_of

Binding: TypeAlias = Any
"""The module nvidia-ml-py; it has no types."""
_Enum = TypeVar("_Enum", bound=IntEnum)


def ask(binding: Binding, name: str, *args: Any, call: str = "", **options: Any) -> Any:
    """What function `name` of nvidia-ml-py answers; `call` is NVML's own name for it where that differs."""
    try:
        return getattr(binding, name)(*args, **options)
    except binding.NVMLError as error:
        raise error_of(call or name, error.value) from None


def text(answer: bytes | str) -> str:
    """A string of NVML; struct fields come as bytes, function results mostly as str."""
    return answer.decode() if isinstance(answer, bytes) else answer


def address(handle: Any) -> int:
    """The number behind a handle: what two handles of the same thing have in common."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def profile_name(name: bytes) -> str:
    """A profile's name; drivers write `MIG ` before it."""
    return text(name).removeprefix("MIG ")


def known(kind: type[_Enum], number: int, otherwise: _Enum) -> _Enum:
    """The member of `kind` with this number, or `otherwise` where a newer driver tells a number not listed here."""
    try:
        return kind(number)
    except ValueError:
        return otherwise
