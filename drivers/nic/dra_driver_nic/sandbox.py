"""What happens when a pod's sandbox starts and stops: its interfaces go there, and come back.

All slow work was done in `dra_prepare`; here nothing is read that the claim's data does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from dra_driver_nic.attach import Attachment, attach, is_tagged
from dra_driver_nic.devices import NicRecord
from dra_driver_nic.dhcp import Lease
from dra_driver_nic.leases import with_lease
from dra_driver_nic.links import Namespace
from dra_driver_nic.node import NicNode
from dra_sdk import HeldClaim, PermanentError, PodSandbox, RetriableError

ATTACHMENT = "attachment"
"""The key of an attachment in the data of a device."""


def attachments(claim: HeldClaim) -> Iterator[Attachment]:
    """The interfaces that a claim moves."""
    for device in claim.devices:
        if ATTACHMENT in device.data:
            yield Attachment.from_entry(device.data[ATTACHMENT])


def run_pod_sandbox(node: NicNode, pod: PodSandbox) -> None:
    """Move and configure all interfaces of a pod's claims, or none.

    Raises PermanentError for a pod in the node's own network, RetriableError if the kernel refuses a step.
    """
    wanted = [each for claim in pod.claims for each in attachments(claim)]
    if not wanted:
        return
    if not pod.network_namespace:
        raise PermanentError(f"{pod} uses the network of its node (hostNetwork), so it cannot get {wanted[0]}")
    with ExitStack() as stack:
        records = {each.device: stack.enter_context(node.records.locked(each.device)) for each in wanted}
        namespace = stack.enter_context(node.namespace())
        target = stack.enter_context(node.pod_namespace(pod.network_namespace))
        if target is None:
            raise RetriableError(f"the network namespace {pod.network_namespace} of {pod} does not exist")
        wanted = [_with_lease(each, records[each.device]) for each in wanted]
        for each in wanted:
            _take_from_before(node, namespace, each, records[each.device], pod)
        for each in wanted:
            record = records[each.device]
            record.pod, record.pod_name = pod.uid, f"{pod.namespace}/{pod.name}"
            record.namespace, record.tag = pod.network_namespace, each.tag
            node.records.save(each.device, record)
        attach(namespace, target, wanted)


def _with_lease(attachment: Attachment, record: NicRecord) -> Attachment:
    return with_lease(attachment, Lease.from_entry(record.lease)) if record.lease else attachment


def _take_from_before(
    node: NicNode, namespace: Namespace, attachment: Attachment, record: NicRecord, pod: PodSandbox
) -> None:
    """Bring an interface back that an earlier sandbox has, or that a crash has left on the way."""
    if record.pod and record.pod != pod.uid:
        with node.pod_namespace(record.namespace) as other:
            if other is not None and is_tagged(other, attachment):
                raise RetriableError(f"{attachment} is in pod {record.pod_name}; it can be in one pod only")
    if record.namespace or is_tagged(namespace, attachment):
        node.bring_back(attachment, record)


def stop_pod_sandbox(node: NicNode, pod: PodSandbox) -> None:
    """Bring back what a pod's sandbox has. Raises RetriableError; `dra_unprepare` tries again."""
    for claim in pod.claims:
        for each in attachments(claim):
            with node.records.locked(each.device) as record:
                if record.pod == pod.uid and pod.network_namespace in {record.namespace, ""}:
                    node.bring_back(each, record)
                    record.pod = record.pod_name = record.namespace = record.tag = ""
                    node.records.save(each.device, record)
