"""Write dra_sdk/wire/gate_names.txt: all feature gates of Kubernetes releases, from their source.

    python tests/wire/make_gate_names.py …/kubernetes@v1.34.4 …/kubernetes@v1.37.2 …/client-go@v0.37.2

The directories are source trees of k8s.io/kubernetes, client-go and component-base.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

TARGET = Path(__file__).parents[2] / "dra_sdk/wire/gate_names.txt"
FILES = (
    "pkg/features/kube_features.go",
    "features/known_features.go",
    "metrics/features/kube_features.go",
    "logs/api/v1/kube_features.go",
)
DECLARED = re.compile(r"^\t(?:\w+\.)?([A-Z]\w+)(?:\s+(?:featuregate\.)?Feature\s*=|:\s*\{)", re.MULTILINE)


def main(trees: list[str]) -> None:
    """Read the trees and write the file."""
    names = {
        name
        for tree in trees
        for file in FILES
        if (path := Path(tree) / file).is_file()
        for name in DECLARED.findall(path.read_text(encoding="utf-8"))
    }
    TARGET.write_text("\n".join(sorted(names)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
