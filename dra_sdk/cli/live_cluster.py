"""A running cluster as a source of objects, read once or followed, and the flags that kubectl has for it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from dra_sdk.cli.arguments import Parser, from_text, positive_seconds
from dra_sdk.errors import NotFoundError
from dra_sdk.kube import paths
from dra_sdk.tools.scheduling.cluster import ClaimOutcome, ObjectKey, ObjectSource, PodPlacement, SchedulingOutcome
from dra_sdk.wire.documents import Document
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.selectors import LabelSelector, labels_match, parse_labels

if TYPE_CHECKING:
    from dra_sdk.kube.collections import Collections

CALM_SECONDS: Final = 0.5
"""After a change, the answer is found again when nothing else has changed for this time."""
LONGEST_CALM_SECONDS: Final = 5.0
_KINDS: Final = (
    ("Node", "v1", paths.nodes()),
    ("Pod", "v1", paths.pods()),
    ("ResourceSlice", paths.API_VERSION, paths.resource_slices()),
    ("DeviceClass", paths.API_VERSION, paths.device_classes()),
    ("ResourceClaim", paths.API_VERSION, paths.resource_claims()),
    ("ResourceClaimTemplate", paths.API_VERSION, paths.resource_claim_templates()),
)
"""Kind, API version and collection of what every server has."""
_OPTIONAL: Final = (
    ("ResourceQuota", "v1", paths.resource_quotas()),
    ("PriorityClass", "scheduling.k8s.io/v1", paths.priority_classes()),
    ("PodDisruptionBudget", "policy/v1", paths.pod_disruption_budgets()),
)
"""What decides about quota and preemption; a server of tests may not have them."""


def add_connection_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that say which cluster, as kubectl has them."""
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="kubeconfig of the running cluster (default: as for kubectl)"
    )
    parser.add_argument("--context", default="", metavar="NAME", help="a context of the kubeconfig")


def add_selection_flags(parser: Parser, what: str, labelled: str) -> None:
    """Add the flags that choose among namespaces and labels, as kubectl has them.

    what: what of a namespace is shown.
    labelled: whose labels --selector looks at.
    """
    scope = parser.add_mutually_exclusive_group()
    scope.add_argument(
        "-n",
        "--namespace",
        default="",
        metavar="NAME",
        help=f"only {what} of this namespace, which objects and names without one are in",
    )
    scope.add_argument(
        "-A", "--all-namespaces", action="store_true", help=f"{what} of all namespaces, as without --namespace"
    )
    add_label_flag(parser, labelled)


def add_label_flag(parser: argparse.ArgumentParser, labelled: str) -> None:
    """Add the flag that chooses by labels, as kubectl has it; `labelled` says whose labels it looks at."""
    parser.add_argument(
        "-l",
        "--selector",
        type=from_text(parse_labels),
        default=(),
        metavar="LABELS",
        help=f"only {labelled} with these labels, such as app=web,tier!=cache,zone in (a,b)",
    )


def add_watch_flags(parser: argparse.ArgumentParser, until: str) -> None:
    """Add --watch and its limit; `until` says when watching ends."""
    parser.add_argument("-w", "--watch", action="store_true", help=f"follow the running cluster {until}")
    parser.add_argument(
        "--timeout", type=positive_seconds, metavar="SECONDS", help="with --watch: end after this time, with status 1"
    )


def names_cluster(arguments: argparse.Namespace) -> bool:
    """Return whether the flags ask for a running cluster."""
    return bool(getattr(arguments, "from_cluster", False) or arguments.kubeconfig or arguments.context)


@dataclass(frozen=True, slots=True)
class LiveCluster:
    """The objects of a running cluster that matter for devices.

    name: the URL of its API server.
    version: the server's version, such as `v1.36.3`.
    namespace: the namespace of objects and names that have none.
    kinds: the API version and the collection of each kind.
    collections: has the objects.
    follow: whether the collections follow the cluster.
    """

    name: str
    version: str
    namespace: str
    kinds: dict[str, tuple[str, str]]
    collections: Collections
    follow: bool

    def source(self) -> ObjectSource:
        """Return the objects as they are now."""
        objects = [
            {"apiVersion": api_version, "kind": kind} | obj
            for kind, (api_version, path) in self.kinds.items()
            for obj in self.collections.items(path)
        ]
        return ObjectSource(self.name, [Document(obj) for obj in objects], stored=True)

    def moments(self, timeout: float | None = None) -> Iterator[None]:
        """Yield at once and, if the cluster is followed, after each change until `timeout` seconds are over.

        ApiError if it cannot be followed any more.
        """
        yield
        end = None if timeout is None else monotonic() + timeout
        while self.follow:
            left = None if end is None else end - monotonic()
            if left is not None and left <= 0:
                return
            if self.collections.wait(left, calm=CALM_SECONDS, at_most=LONGEST_CALM_SECONDS):
                yield


@contextmanager
def opened_cluster(arguments: argparse.Namespace, *, follow: bool = False) -> Iterator[LiveCluster]:
    """Yield the cluster that the flags name; SettingsError or ApiError. With `follow` it watches all that it lists."""
    from dra_sdk.kube.client import KubeClient  # noqa: PLC0415 (only for a running cluster)
    from dra_sdk.kube.collections import Collections  # noqa: PLC0415
    from dra_sdk.kube.login import namespace_of  # noqa: PLC0415
    from dra_sdk.kube.source import find_source  # noqa: PLC0415

    context = arguments.context
    namespace = namespace_of(find_source(arguments.kubeconfig, context))
    with closing(KubeClient.connect(arguments.kubeconfig, context=context)) as client:
        version = str(client.get("/version").get("gitVersion", ""))
        kinds = {kind: (api_version, path) for kind, api_version, path in _KINDS}
        # DeviceTaintRules in the best version that the server has; before 1.37 it may have none.
        rules = [f"{paths.GROUP}/{rule_version}" for rule_version in ServerProfile.of(version).taint_rule_versions()]
        rule_kinds = [("DeviceTaintRule", rule, paths.device_taint_rules(rule)) for rule in rules]
        profile = ServerProfile.of(version, getattr(arguments, "feature_gates", None))
        groups = [f"scheduling.k8s.io/{group_version}" for group_version in profile.pod_group_versions()]
        group_kinds = [("PodGroup", group, paths.pod_groups(group)) for group in groups]
        for kind, api_version, path in (*_OPTIONAL, *rule_kinds, *group_kinds):
            if kind not in kinds:
                with suppress(NotFoundError):
                    client.get(path, {"limit": "1"})
                    kinds[kind] = (api_version, path)
        with closing(Collections(client, [path for _, path in kinds.values()])) as collections:
            collections.start(follow=follow)
            yield LiveCluster(client.server, version, namespace, kinds, collections, follow)


# -- what -n and -l choose


def labels_of(obj: object) -> dict[str, str]:
    """Return the labels of an object, none if it is not one."""
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    return labels if isinstance(labels, dict) else {}


def selected(outcome: SchedulingOutcome, arguments: argparse.Namespace) -> SchedulingOutcome:
    """Return the outcome with the pods of --namespace and --selector alone, and the claims that no other pod uses."""
    namespace: str = arguments.namespace
    labels: LabelSelector = arguments.selector
    if not (namespace or labels):
        return outcome

    def matches(key: ObjectKey, obj: dict[str, object] | None) -> bool:
        return (not namespace or key[0] == namespace) and labels_match(labels, labels_of(obj))

    def keeps_pod(pod: PodPlacement) -> bool:
        return matches(pod.pod, outcome.snapshot.pods_by_key.get(pod.pod))

    pods = tuple(filter(keeps_pod, outcome.pods))
    used = {claim for pod in pods for claim in pod.claims}
    others = {claim for pod in outcome.pods for claim in pod.claims} - used

    def keeps_claim(claim: ClaimOutcome) -> bool:
        obj = outcome.snapshot.claims_by_key.get(claim.claim)
        return claim.claim in used or (claim.claim not in others and matches(claim.claim, obj))

    claims = tuple(filter(keeps_claim, outcome.claims))
    return replace(outcome, pods=pods, claims=claims)
