"""`dra-sdk capture`: record the files of this node that drivers read as one archive, for tests and for bug reports.

It reads /sys, /proc and /dev, changes nothing and needs no privileges: what only root may read is left out. There are
no processes, no other files and no kernel addresses in the archive, and, without --with-ids, made-up MAC addresses,
GUIDs, UUIDs and serial numbers. `discover`, `simulate`, `explain`, `demo`, `conformance` and `top` read it in place of
a directory. Exit status: 0 the archive is complete, 1 a limit on its size was reached, 2 it could not be written.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from dra_sdk.cli.arguments import REPEATED, Commands, check_host_root
from dra_sdk.cli.hook_calls import load_driver
from dra_sdk.cli.output import print_lines
from dra_sdk.errors import SettingsError
from dra_sdk.texts import counted


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("capture", help="record this node's files as an archive", description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.tar.gz", help="the archive to write")
    parser.add_argument(
        "--driver",
        **REPEATED,
        metavar="NAME",
        help="also the files that this driver names (`capture` of its DriverInfo); may be repeated",
    )
    parser.add_argument(
        "--include",
        **REPEATED,
        metavar="GLOB",
        help="also these files and directories, such as '/sys/class/fpga/*'; may be repeated",
    )
    parser.add_argument("--with-ids", action="store_true", help="keep MAC addresses, GUIDs, UUIDs and serial numbers")
    parser.add_argument(
        "--host-root", type=Path, default=Path("/"), metavar="DIR", help="where the host's files are (default /)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Capture, write, and say what was left out."""
    from dra_sdk.tools.node_archive.archive import MANIFEST  # noqa: PLC0415 (when it runs)
    from dra_sdk.tools.node_archive.node_files import capture, write_archive  # noqa: PLC0415 (when it runs)

    check_host_root(arguments.host_root)
    patterns = list(arguments.include)
    for name in arguments.driver:
        patterns += load_driver(name).info.capture
    tree = capture(arguments.host_root, include=patterns, with_ids=arguments.with_ids)
    try:
        write_archive(tree, arguments.output)
    except OSError as error:
        raise SettingsError(f"cannot write {arguments.output}: {error.strerror}") from error
    parts = [counted(len(tree.files), "file"), counted(len(tree.devices), "device node"), f"{tree.size >> 10} KiB"]
    ids = "identifiers are the real ones" if tree.with_ids else f"{counted(tree.identifiers, 'identifier')} replaced"
    print_lines([f"{arguments.output}: {', '.join(parts)}; {ids}"])
    reasons = Counter(tree.left_out.values()).most_common()
    print_lines((f"left out: {counted(number, 'path')}: {reason}" for reason, number in reasons), sys.stderr)
    if reasons:
        print_lines([f"{MANIFEST} in the archive names them"], sys.stderr)
    return 0 if tree.complete else 1
