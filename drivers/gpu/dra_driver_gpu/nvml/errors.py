"""What NVML can answer besides success, as exceptions: one class for each return code, all below `NvmlError`.

```
NvmlError
├── UninitializedError            1    nvmlInit was not called, or failed
├── InvalidArgumentError          2    also: a handle whose instance was destroyed
├── NotSupportedError             3    the GPU, its mode or the driver does not offer this
├── NoPermissionError             4
├── NotFoundError                 6
├── InsufficientSizeError         7    a buffer of the caller is too small
├── DriverNotLoadedError          9    no kernel module, or no GPU of it
├── TimedOutError                10
├── LibraryNotFoundError         12    no libnvidia-ml.so.1 under the driver root
├── FunctionNotFoundError        13    the library is older than the call
├── GpuIsLostError               15    the GPU fell off the bus
├── ResetRequiredError           16
├── OperatingSystemError         17
├── VersionMismatchError         18    library and kernel module are of different versions
├── InUseError                   19    a client, an instance or a process holds what is to change
├── OutOfMemoryError             20
├── InsufficientResourcesError   23    no room: the placement overlaps, or the profile is used up
├── ArgumentVersionMismatchError 25    a struct version that the library does not know
├── NotReadyError                27
├── InvalidStateError            29
└── UnknownNvmlError             any other code
```

Source: `nvmlReturn_t` of nvml.h. `code` is NVML's number, `call` the NVML function that answered with it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from dra_sdk.errors import DraError


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


class NvmlError(DraError):
    """NVML answered a call with something other than success."""

    #: The return code of this class; `code` of an instance is what NVML really answered.
    return_code: ClassVar[int] = ReturnCode.UNKNOWN

    def __init__(self, call: str, code: int | None = None, detail: str = "") -> None:
        self.call = call
        self.code = self.return_code if code is None else code
        super().__init__(f"{call}: {detail or _TEXT.get(self.code, 'unknown error')} (NVML return code {self.code})")


class UninitializedError(NvmlError):
    """The library was not initialized."""

    return_code = ReturnCode.UNINITIALIZED


class InvalidArgumentError(NvmlError):
    """An argument is wrong, or a handle is of something that is gone."""

    return_code = ReturnCode.INVALID_ARGUMENT


class NotSupportedError(NvmlError):
    """The GPU does not offer this, or not in its present mode."""

    return_code = ReturnCode.NOT_SUPPORTED


class NoPermissionError(NvmlError):
    """The process may not do this."""

    return_code = ReturnCode.NO_PERMISSION


class NotFoundError(NvmlError):
    """Nothing has this index, id, UUID or PCI address."""

    return_code = ReturnCode.NOT_FOUND


class InsufficientSizeError(NvmlError):
    """A buffer of the caller is too small."""

    return_code = ReturnCode.INSUFFICIENT_SIZE


class DriverNotLoadedError(NvmlError):
    """The NVIDIA kernel module is not loaded."""

    return_code = ReturnCode.DRIVER_NOT_LOADED


class TimedOutError(NvmlError):
    """The time given to a call passed."""

    return_code = ReturnCode.TIMEOUT


class LibraryNotFoundError(NvmlError):
    """There is no NVML library to load."""

    return_code = ReturnCode.LIBRARY_NOT_FOUND


class FunctionNotFoundError(NvmlError):
    """The library does not have this function: it is older than the binding."""

    return_code = ReturnCode.FUNCTION_NOT_FOUND


class GpuIsLostError(NvmlError):
    """The GPU fell off the bus, or is not reachable for another reason."""

    return_code = ReturnCode.GPU_IS_LOST


class ResetRequiredError(NvmlError):
    """The GPU must be reset, or the virtual machine restarted, first."""

    return_code = ReturnCode.RESET_REQUIRED


class OperatingSystemError(NvmlError):
    """The operating system, a cgroup for instance, blocks the GPU."""

    return_code = ReturnCode.OPERATING_SYSTEM


class VersionMismatchError(NvmlError):
    """Library and kernel module are of different driver versions."""

    return_code = ReturnCode.LIB_RM_VERSION_MISMATCH


class InUseError(NvmlError):
    """A client, an instance or a process holds what is to be changed."""

    return_code = ReturnCode.IN_USE


class OutOfMemoryError(NvmlError):
    """The library could not get memory."""

    return_code = ReturnCode.MEMORY


class InsufficientResourcesError(NvmlError):
    """There is no room for another instance of this profile at this placement."""

    return_code = ReturnCode.INSUFFICIENT_RESOURCES


class ArgumentVersionMismatchError(NvmlError):
    """The library does not know this version of a struct."""

    return_code = ReturnCode.ARGUMENT_VERSION_MISMATCH


class NotReadyError(NvmlError):
    """The GPU is not ready yet."""

    return_code = ReturnCode.NOT_READY


class InvalidStateError(NvmlError):
    """The GPU is in a state in which the call makes no sense."""

    return_code = ReturnCode.INVALID_STATE


class UnknownNvmlError(NvmlError):
    """A return code that this driver has no class for."""


_TEXT = {
    1: "the library is not initialized",
    2: "invalid argument",
    3: "not supported",
    4: "no permission",
    6: "not found",
    7: "buffer too small",
    9: "the kernel driver is not loaded",
    10: "timed out",
    12: "the library was not found",
    13: "the library has no such function",
    15: "the GPU is lost",
    16: "the GPU needs a reset",
    17: "the operating system blocks the GPU",
    18: "library and kernel driver are of different versions",
    19: "in use",
    20: "out of memory",
    23: "no room for it",
    25: "the library does not know this struct version",
    27: "not ready",
    29: "invalid state",
}
_CLASSES = {one.return_code: one for one in NvmlError.__subclasses__() if one is not UnknownNvmlError}


def error_of(call: str, code: int, detail: str = "") -> NvmlError:
    """The exception for return code `code` of NVML function `call`; `detail` replaces the standard words."""
    return _CLASSES.get(code, UnknownNvmlError)(call, code, detail)
