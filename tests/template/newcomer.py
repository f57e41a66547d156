"""Measures what a newcomer waits for: from a fresh clone and nothing installed to the first prepared claim.

    python -m tests.template.newcomer

It clones the repository as it is committed, makes a virtual environment, and types the commands of the README. pip has
its cache, or the network. It prints the seconds of each command, and what else the machine did.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_COMMANDS: Final = re.compile(r"^```\n(dra-sdk new .*?)^```$", re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """The commands of the README from `dra-sdk new` to the first prepared claim, one by one."""
    (block,) = _COMMANDS.findall((ROOT / "README.md").read_text())
    lines = [line.partition("  #")[0] for line in block.splitlines()]
    return [command for line in lines for command in line.split(" && ")]


def main() -> int:
    """Type them, and print the times; the exit status."""
    with tempfile.TemporaryDirectory(prefix="newcomer-") as folder:
        directory = Path(folder)
        environment = {**os.environ, "PATH": f"{directory / 'venv/bin'}:{os.environ['PATH']}"}
        for name in ("PYTHONPATH", "VIRTUAL_ENV"):
            environment.pop(name, None)
        subprocess.run(["git", "clone", "--quiet", ROOT, directory / "dra-sdk"], check=True)
        start = time.monotonic()
        venv.create(directory / "venv", with_pip=True)
        print(f"{time.monotonic() - start:6.1f} s  python3 -m venv venv", flush=True)
        spent = 0.0
        for line in ["pip install './dra-sdk[testing]'", *commands()]:
            if line.startswith("cd "):
                directory /= line.removeprefix("cd ")
                continue
            start = time.monotonic()
            done = subprocess.run(
                ["bash", "-c", line], cwd=directory, env=environment, capture_output=True, check=False
            )
            seconds = time.monotonic() - start
            if done.returncode:
                print(f"{line}: exit status {done.returncode}\n{done.stdout.decode()}{done.stderr.decode()}")
                return 1
            spent = spent + seconds if "my-driver" in line or directory.name == "my-driver" else 0.0
            since = f"  ({spent:.1f} s since `dra-sdk new`)" if spent else ""
            print(f"{seconds:6.1f} s  {line}{since}", flush=True)
    processors = os.cpu_count()
    print(f"load {' '.join(f'{each:.1f}' for each in os.getloadavg())} on {processors} processors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
