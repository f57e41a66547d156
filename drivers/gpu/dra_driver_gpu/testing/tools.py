"""Programs of the NVIDIA driver for a node made of files: shell scripts that do what can be seen of the real ones.

`nvidia-smi` keeps the time slice of each GPU in a file below `/run/time-slices`, absent for the default.
`nvidia-cuda-mps-control` is a daemon with `-f`, and else gives one order to the daemon of its pipe directory, which
keeps the orders it was given in its log directory. A daemon that is stopped (SIGSTOP) lets the order wait.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

_SMI: Final = """#!/bin/sh
[ "$1" = compute-policy ] && [ "$2" = -i ] && [ "$4" = --set-timeslice ] || { echo "cannot do: $*" >&2; exit 2; }
mkdir -p "ROOT/run/time-slices"
if [ "$5" = 0 ]; then rm -f "ROOT/run/time-slices/$3"; else echo "$5" > "ROOT/run/time-slices/$3"; fi
"""
_MPS: Final = """#!/bin/sh
control="$CUDA_MPS_PIPE_DIRECTORY/control"
if [ "$1" = -f ]; then
    trap 'rm -f "$control"; exit 0' TERM
    echo "started for $CUDA_VISIBLE_DEVICES with $*"
    echo $$ > "$control"
    while [ -e "$control" ]; do sleep 0.02; done
    exit 0
fi
[ -e "$control" ] && read -r pid < "$control" && kill -0 "$pid" || {
    echo "cannot find MPS control daemon process" >&2
    exit 1
}
while { read -r _ _ state _ < "/proc/$pid/stat"; } 2> /dev/null && [ "$state" = T ]; do sleep 0.02; done
while read -r order; do
    echo "$order" >> "$CUDA_MPS_LOG_DIRECTORY/orders"
    case "$order" in
        quit) rm -f "$control" ;;
        get_*) echo 100.0 ;;
        set_*) ;;
        *) echo "unknown: $order" >&2; exit 1 ;;
    esac
done
"""


def write_tools(root: Path, driver_root: Path) -> None:
    """Writes both below the driver root of a node whose root is here."""
    for name, text in (("nvidia-smi", _SMI), ("nvidia-cuda-mps-control", _MPS)):
        path = driver_root / "usr/bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("ROOT", str(root)), encoding="utf-8")
        path.chmod(0o755)
