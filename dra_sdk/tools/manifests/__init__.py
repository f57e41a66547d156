"""The objects that install drivers on a cluster: the Helm chart of `deploy/chart`, rendered without Helm.

The chart is the only source. `go_template` evaluates the part of Go's template language that its templates use, and a
test compares what comes out with what Helm makes of the same values, object by object.
"""

from dra_sdk.tools.manifests.chart import CHART, RELEASE, Chart, Manifest, merge_values
from dra_sdk.tools.manifests.values import Values, values_schema

__all__ = ["CHART", "RELEASE", "Chart", "Manifest", "Values", "merge_values", "values_schema"]
