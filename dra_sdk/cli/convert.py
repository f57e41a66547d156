"""`dra-sdk convert`: write objects of resource.k8s.io/v1beta1 and v1beta2 as v1.

Prints all objects of the files, those of other groups as they are, with the items of Lists one by one. Comments are not
kept. Exit status: 0 if everything is written, 2 for a file or an object that cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from dra_sdk.cli.arguments import Commands, add_output
from dra_sdk.cli.input import STDIN, file_names, read_file
from dra_sdk.cli.output import print_lines, print_objects
from dra_sdk.errors import InvalidObjectError
from dra_sdk.texts import counted
from dra_sdk.wire.conversion import older_version, reading_problem, to_v1
from dra_sdk.wire.documents import objects
from dra_sdk.wire.validation import title


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("convert", help="write objects of older API versions as v1", description=__doc__)
    parser.add_files(f"YAML or JSON; {STDIN} is standard input", required=True)
    add_output(parser, ("yaml", "json"), "yaml: documents (default); json: one List")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Convert and print; InvalidObjectError for an object that cannot be converted."""
    converted: list[Any] = []
    older = 0
    for name in file_names(arguments.files):
        source = read_file(name)
        for document in source.documents:
            for path, obj in objects(document.value):
                if problem := reading_problem(obj):
                    where = f"{source.name}:{document.line([*path, problem.field])}: {title(obj).replace(' ', '/', 1)}"
                    raise InvalidObjectError(where, [str(problem)])
                older += bool(older_version(obj))
                converted.append(to_v1(obj))
    print_objects(converted, arguments.output)
    print_lines([f"{older} of {counted(len(converted), 'object')} converted"], sys.stderr)
    return 0
