"""The steps of a driver's calls: what its extensions surround them with (`dra_step`), and the time that hooks take."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from dra_sdk.model.step import Step

Observer = Callable[[Step], AbstractContextManager[object] | None]
"""`dra_step` of an extension."""
Measure = Callable[[str], AbstractContextManager[object]]
_NO_METADATA: Final[Mapping[str, str]] = {}
_P = ParamSpec("_P")
_R = TypeVar("_R")


class Steps:
    """Surrounds steps of a driver's calls with what its extensions return for them.

    observers: `dra_step` of each extension that has it.
    measure: returns a context manager for one run of a hook, given the hook's name; not for `dra_watch` and
        `dra_device_health`, which last as long as the process.
    hook: returns a context manager for one run of a hook as a step that is measured.

    `driver` is the driver's name.
    """

    def __init__(self, driver: str, observers: Sequence[Observer] = (), measure: Measure = nullcontext) -> None:
        self._driver, self.observers = driver, observers
        self.measure = measure
        self.hook: Measure = self._observed_hook if observers else measure

    def step(
        self, name: str, metadata: Mapping[str, str] = _NO_METADATA, **attributes: str
    ) -> AbstractContextManager[object]:
        """Return a context manager for one step; what observers raise is raised here."""
        step = Step(self._driver, name, attributes, metadata)
        return _Together([manager for observe in self.observers if (manager := observe(step)) is not None])

    def around(
        self,
        name: str,
        function: Callable[_P, _R],
        attributes: Callable[..., dict[str, str]] = lambda *_args, **_kwargs: {},
    ) -> Callable[_P, _R]:
        """Return `function` as a step, with `attributes` of its arguments; `function` itself if nothing observes it."""
        if not self.observers:
            return function

        @wraps(function)
        def observed(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with self.step(name, _NO_METADATA, **attributes(*args, **kwargs)):
                return function(*args, **kwargs)

        return observed

    def _observed_hook(self, hook: str) -> AbstractContextManager[object]:
        return _Together([self.step(hook), self.measure(hook)])


class _Together:
    """Enters context managers in order, and leaves them in reverse."""

    __slots__ = ("_managers", "_stack")

    def __init__(self, managers: Sequence[AbstractContextManager[object]]) -> None:
        self._managers, self._stack = managers, ExitStack()

    def __enter__(self) -> None:
        for manager in self._managers:
            self._stack.enter_context(manager)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> bool | None:
        self._stack.__exit__(kind, error, trace)
        return None  # an extension hides no failure
