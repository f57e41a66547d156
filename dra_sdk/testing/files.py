"""The SDK's files as they are written in tests: all as in production, but nobody waits for a disk."""

from __future__ import annotations

from pathlib import Path

from dra_sdk.node.files import Files


class QuickFiles(Files):
    """Without fsync. A killed process loses nothing by it, and power does not fail in tests."""

    def write(
        self,
        path: str | Path,
        content: bytes,
        mode: int = 0o600,
        *,
        survive_power_loss: bool = True,
        whole: bool = True,
    ) -> None:
        """As `Files.write`."""
        del survive_power_loss, whole
        super().write(path, content, mode, survive_power_loss=False, whole=False)

    def remove(self, path: str | Path, *, survive_power_loss: bool = True) -> None:
        """As `Files.remove`."""
        del survive_power_loss
        super().remove(path, survive_power_loss=False)
