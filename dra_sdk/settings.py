"""Types for the fields of a driver's settings: paths, seconds, lists, and text that a function reads.

`DriverSettings`, the base of the class, is in `dra_sdk`. `docs/blocks/settings.md` has them all in one example.
"""

from dra_sdk.model.settings import CommaSeparated, HostPath, KubeletPath, Parsed, Seconds, split_words

__all__ = ["CommaSeparated", "HostPath", "KubeletPath", "Parsed", "Seconds", "split_words"]
