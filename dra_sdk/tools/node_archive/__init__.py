"""The files of a node that drivers read, as one archive: `dra-sdk capture` writes it, commands and tests read it.

An archive is a gzipped tar file with `sys`, `proc` and `dev` as on the node, and `dra-sdk-node.json` with what a tar
file of ordinary files cannot hold: the device nodes, and what was left out and why. Capturing needs only the standard
library, so it also works on a node without the packages of `dra-sdk[tools]`.
"""

from dra_sdk.tools.node_archive.archive import (
    MANIFEST,
    ArchiveManifest,
    HostDevice,
    extract,
    opened_root,
    read_manifest,
)
from dra_sdk.tools.node_archive.node_files import Captured, capture, write_archive

__all__ = [
    "MANIFEST",
    "ArchiveManifest",
    "Captured",
    "HostDevice",
    "capture",
    "extract",
    "opened_root",
    "read_manifest",
    "write_archive",
]
