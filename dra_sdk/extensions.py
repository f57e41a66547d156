"""What an extension imports: a plugin that observes or wraps the hooks of every driver, such as an audit log.

`docs/how-to/extension.md` shows one. Source of the wrappers: pluggy, "Hook wrappers".
"""

from dra_sdk.hookspecs import hookimpl
from dra_sdk.model.step import Step
from dra_sdk.model.undo import UndoStep, Verdict

__all__ = ["Step", "UndoStep", "Verdict", "hookimpl"]
