"""A measured value that a driver adds to the metrics of its process.

Source: Prometheus' text format and its rules for names of metrics and labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Gauge:
    """One value now, for Prometheus.

        Gauge("fpga_free_regions", "Regions that no claim has", 3, {"card": "0"})

    name: name of the metric, such as `dra_cpu_shared_cpus`: letters, digits and `_`, not beginning with `dra_sdk_`. Its
        last word is the unit, if it has one.
    help: what it is, for people. The same for all values of a metric.
    value: the value.
    labels: what tells the values of a metric apart; all of them have the same names. The label `driver` is added.
    """

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)
