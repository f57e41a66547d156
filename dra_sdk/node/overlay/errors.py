"""What can be wrong with an overlay file."""

from __future__ import annotations

from dra_sdk.errors import SettingsError


class OverlayError(SettingsError):
    """The file cannot be read or used; `problems` holds one sentence for each, with line and field."""

    def __init__(self, source: str, problems: list[str]) -> None:
        self.source = source
        self.problems = problems
        super().__init__(f"overlay {source}: " + "; ".join(problems))
