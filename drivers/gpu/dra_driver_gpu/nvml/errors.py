"""NVML's return codes as exceptions: `NvmlError` for all of them, subclasses for those that a caller handles.

```
NvmlError                         any return code, in `code`
├── InvalidArgumentError          2    also: a handle to an instance that was destroyed
├── NotSupportedError             3    the GPU, its mode or the driver does not offer this
├── NotFoundError                 6    nothing has this index, id, UUID or PCI address
├── DriverNotLoadedError          9    no kernel module, or it has no GPU
├── TimedOutError                10    the time given to a call has passed
├── LibraryNotFoundError         12    no libnvidia-ml.so.1 under the driver root
├── FunctionNotFoundError        13    the library is older than the call
├── GpuIsLostError               15    the GPU fell off the bus
├── ResetRequiredError           16    the GPU must be reset, or the virtual machine restarted
├── InUseError                   19    a client, an instance or a process holds what is to change
└── InsufficientResourcesError   23    the placement overlaps another, or the profile is used up
```

Source: `nvmlReturn_t` of nvml.h.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar, Final

from dra_sdk import DraError


class ReturnCode(IntEnum):
    """`nvmlReturn_t`, as far as a DRA driver meets it."""

    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    LIB_RM_VERSION_MISMATCH = 18
    IN_USE = 19
    MEMORY = 20
    INSUFFICIENT_RESOURCES = 23
    ARGUMENT_VERSION_MISMATCH = 25
    NOT_READY = 27
    INVALID_STATE = 29
    UNKNOWN = 999


_MEANINGS: Final[dict[int, str]] = {
    ReturnCode.UNINITIALIZED: "the library is not initialized",
    ReturnCode.INVALID_ARGUMENT: "invalid argument",
    ReturnCode.NOT_SUPPORTED: "not supported",
    ReturnCode.NO_PERMISSION: "no permission",
    ReturnCode.NOT_FOUND: "not found",
    ReturnCode.INSUFFICIENT_SIZE: "buffer too small",
    ReturnCode.DRIVER_NOT_LOADED: "the kernel driver is not loaded",
    ReturnCode.TIMEOUT: "timed out",
    ReturnCode.LIBRARY_NOT_FOUND: "the library was not found",
    ReturnCode.FUNCTION_NOT_FOUND: "the library has no such function",
    ReturnCode.GPU_IS_LOST: "the GPU is lost",
    ReturnCode.RESET_REQUIRED: "the GPU needs a reset",
    ReturnCode.OPERATING_SYSTEM: "the operating system blocks the GPU",
    ReturnCode.LIB_RM_VERSION_MISMATCH: "library and kernel driver have different versions",
    ReturnCode.IN_USE: "in use",
    ReturnCode.MEMORY: "out of memory",
    ReturnCode.INSUFFICIENT_RESOURCES: "no room for it",
    ReturnCode.ARGUMENT_VERSION_MISMATCH: "the library does not know this struct version",
    ReturnCode.NOT_READY: "not ready",
    ReturnCode.INVALID_STATE: "invalid state",
}


class NvmlError(DraError):
    """NVML answered a call with something other than success.

    call: the NVML function.
    code: NVML's return code, also one that `ReturnCode` does not list.
    """

    #: The return code of a subclass; the default of `code`.
    return_code: ClassVar[int] = ReturnCode.UNKNOWN

    def __init__(self, call: str, code: int | None = None, detail: str = "") -> None:
        self.call = call
        self.code = int(self.return_code if code is None else code)
        super().__init__(
            f"{call}: {detail or _MEANINGS.get(self.code, 'unknown error')} (NVML return code {self.code})"
        )


class InvalidArgumentError(NvmlError):
    """An argument is wrong, or a handle is to something that is gone."""

    return_code = ReturnCode.INVALID_ARGUMENT


class NotSupportedError(NvmlError):
    """The GPU does not offer this, or not in its present mode."""

    return_code = ReturnCode.NOT_SUPPORTED


class NotFoundError(NvmlError):
    """Nothing has this index, id, UUID or PCI address."""

    return_code = ReturnCode.NOT_FOUND


class DriverNotLoadedError(NvmlError):
    """The NVIDIA kernel module is not loaded."""

    return_code = ReturnCode.DRIVER_NOT_LOADED


class TimedOutError(NvmlError):
    """The time given to a call has passed."""

    return_code = ReturnCode.TIMEOUT


class LibraryNotFoundError(NvmlError):
    """There is no NVML library to load."""

    return_code = ReturnCode.LIBRARY_NOT_FOUND


class FunctionNotFoundError(NvmlError):
    """The library lacks this function: it is older than the binding."""

    return_code = ReturnCode.FUNCTION_NOT_FOUND


class GpuIsLostError(NvmlError):
    """The GPU fell off the bus, or cannot be reached for another reason."""

    return_code = ReturnCode.GPU_IS_LOST


class ResetRequiredError(NvmlError):
    """The GPU must be reset, or the virtual machine restarted, first."""

    return_code = ReturnCode.RESET_REQUIRED


class InUseError(NvmlError):
    """A client, an instance or a process holds what is to be changed."""

    return_code = ReturnCode.IN_USE


class InsufficientResourcesError(NvmlError):
    """There is no room for another instance of this profile at this placement."""

    return_code = ReturnCode.INSUFFICIENT_RESOURCES


_CLASSES: Final = {subclass.return_code: subclass for subclass in NvmlError.__subclasses__()}


def error_of(call: str, code: int, detail: str = "") -> NvmlError:
    """Return the exception for return code `code` of NVML function `call`; `detail` replaces the standard text."""
    return _CLASSES.get(code, NvmlError)(call, code, detail)
