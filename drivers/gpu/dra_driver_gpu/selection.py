"""Which GPUs a node gives to Kubernetes: an allow-list and a hide-list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dra_sdk.hardware import parse_pci_address


@dataclass(frozen=True, slots=True)
class GpuName:
    """All that a GPU can be called in a list; what is not known of it is empty, `minor` None."""

    minor: int | None = None
    uuid: str = ""
    pci_address: str = ""
    product: str = ""

    def matches(self, word: str) -> bool:
        """Whether one word of a list means this GPU."""
        if word.isdecimal():
            return self.minor == int(word)
        if word.upper().startswith("GPU-"):
            return self.uuid.lower() == word.lower()
        if word.count(":"):
            return self.pci_address == parse_pci_address(word)
        return bool(self.product) and fnmatchcase(self.product.lower(), word.lower())


@dataclass(frozen=True, slots=True)
class Selection:
    """GPUs are published if `allow` is empty or names them, unless `hide` names them."""

    allow: Sequence[str] = ()
    hide: Sequence[str] = ()

    @staticmethod
    def parse(text: str) -> tuple[str, ...]:
        """The words of a list, separated by commas; ValueError for one that can mean no GPU."""
        words = tuple(word.strip() for word in text.split(",") if word.strip())
        for word in words:
            if word.upper().startswith("MIG-"):
                raise ValueError(f"{word} is a MIG device; lists are of whole GPUs")
            if word.upper().startswith("GPU-") and word[4:].isdecimal():
                raise ValueError(f"{word} is the name of a device; say its minor number, {word[4:]}")
            if ":" in word:
                parse_pci_address(word)
        return words

    def wants(self, gpu: GpuName) -> bool:
        """Whether this GPU is to be published."""
        allowed = not self.allow or any(map(gpu.matches, self.allow))
        return allowed and not any(map(gpu.matches, self.hide))
