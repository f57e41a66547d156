"""Every fault, the checks that must find it, and a part of the reason that they must give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dra_sdk.testing.waiting import LONG
from tests.tools.conformance.mutants import Faults, faults


@dataclass(frozen=True)
class Mutant:
    """A driver with faults.

    found: for each check that must fail, a part of the reason.
    timeouts: changes of the kit's timeouts, so that the test need not wait long for what never happens.
    lenient_server: whether the API server accepts invalid objects.
    real_deadlines: whether the driver misses a deadline of the kubelet.
    """

    faults: Faults
    found: dict[str, str]
    timeouts: dict[str, float] = field(default_factory=dict)
    lenient_server: bool = False
    real_deadlines: bool = False

    @property
    def name(self) -> str:
        return "+".join(sorted(self.faults))


def _mutant(*names: str, timeouts: dict[str, Any] | None = None, **found: Any) -> Mutant:
    options = {name: found.pop(name) for name in ("lenient_server", "real_deadlines") if name in found}
    checks = {name.replace("_", "-"): reason for name, reason in found.items()}
    return Mutant(faults(*names), checks, timeouts or {}, **options)


MUTANTS = (
    # registration
    _mutant("hidden-socket", timeouts={"start": 0.4}, REG_001="no socket in"),
    _mutant("slow-get-info", real_deadlines=True, REG_002="DEADLINE_EXCEEDED"),
    _mutant("slow-first-get-info", real_deadlines=True, REG_002="GetInfo"),
    _mutant("csi-type", REG_003="type is 'CSIPlugin'", KEP_001="CSIPlugin"),
    _mutant("bad-name", REG_004="name"),
    _mutant("relative-endpoint", REG_005="is not absolute"),
    _mutant("plain-versions", REG_006="1.0.0"),
    _mutant("old-first", REG_007="in the order"),
    _mutant("refuses-news", REG_008="no news, please", KEP_001="no news"),
    _mutant("dies-of-refusal", REG_009="ended with status 1"),
    _mutant("changing-info", REG_010="GetInfo differs"),
    _mutant("late-service", REG_011="UNAVAILABLE"),
    _mutant("odd-socket-name", REG_012="names its socket plugin.sock"),
    # wire
    _mutant("one-version", WIRE_001="UNIMPLEMENTED"),
    _mutant("short-service-name", WIRE_001="UNIMPLEMENTED"),
    _mutant("answers-anything", WIRE_002="OK"),
    _mutant("refuses-unknown-fields", WIRE_003="with an unknown field"),
    _mutant("answers-garbage", WIRE_004="answered with OK"),
    _mutant("v1beta1-differs", WIRE_005="answer differently"),
    # slices
    _mutant("no-slices", timeouts={"slices": 0.2}, SLC_001="there is no ResourceSlice", KEP_002="no device"),
    _mutant("invalid-slice", lenient_server=True, SLC_002="Dev_0"),
    _mutant("missing-slice", timeouts={"slices": 2}, SLC_003="resourceSliceCount is 3", KEP_003="cannot allocate"),
    _mutant("duplicate-device", SLC_003="device dev-0 is in the pool 2 times"),
    _mutant("lost-counters", SLC_003="wires-gone/wires, which does not exist"),
    _mutant("other-node", SLC_004="slices of other nodes"),
    _mutant("no-owner", SLC_005="is not owned by Node"),
    _mutant("own-domain", SLC_006="must be model"),
    _mutant("made-up-attribute", SLC_006="colour is not an attribute of"),
    _mutant("never-back", timeouts={"slices": 4}, SLC_007="not all devices are back"),
    _mutant("restless", timeouts={"slices": 2, "quiet": LONG}, SLC_008="although nothing happened"),
    _mutant("greedy", timeouts={"quiet": LONG}, SLC_009="of another driver was changed"),
    # prepare
    _mutant("empty-answer", PREP_001="has no entry for claim", KEP_004="has no entry for claim"),
    _mutant("extra-entry", PREP_001="which was not requested"),
    _mutant("foreign-device", PREP_002="pool/stranger"),
    _mutant("fewer-devices", PREP_003="missing in the answer"),
    _mutant("subrequests", PREP_004="answered for ['either/first']"),
    _mutant("first-claim-only", PREP_005="has no entry for claim"),
    _mutant("prepares-missing", PREP_006="does not exist was prepared"),
    _mutant("prepares-unallocated", PREP_007="without an allocation was prepared"),
    _mutant("ignores-uid", PREP_008="with another UID was prepared"),
    _mutant("stuck-after-failure", PREP_009="an earlier claim failed"),
    _mutant("takes-all-results", PREP_010="has devices of another driver"),
    _mutant("reads-others-config", PREP_010="of an unknown kind"),
    _mutant("ignores-config", PREP_011="unknown kind was prepared"),
    _mutant("no-guard", PREP_012="was prepared for two claims"),
    _mutant("guards-against-admins", PREP_013="held by another claim"),
    _mutant("no-share-ids", PREP_014="the answer has ['None', 'None']"),
    _mutant("any-device", PREP_015="conformance-absent was prepared"),
    # unprepare
    _mutant("unprepare-empty-answer", UNPREP_001="has no entry for claim"),
    _mutant("unknown-is-error", UNPREP_002="is not prepared"),
    _mutant("unprepare-reads-claim", UNPREP_003="404"),
    _mutant("forgets-undo", UNPREP_005="/sys/lamp: no file → b'on'"),
    _mutant("spec-before-checks", UNPREP_004="CDI specs remain"),
    # idempotency
    _mutant("new-names", IDEM_001="differs from the first"),
    _mutant("no-restore", IDEM_002="after the specs were lost"),
    _mutant("second-unprepare-error", IDEM_003="is not prepared"),
    _mutant("once-only", IDEM_004="the claim was unprepared"),
    _mutant("no-lock", IDEM_005="is being prepared"),
    _mutant("half-done", IDEM_006="half prepared"),
    # cdi
    _mutant("unqualified-ids", CDI_001="must be vendor/class=name"),
    _mutant("no-spec", CDI_001="no spec defines"),
    _mutant("invalid-spec", CDI_002="colour"),
    _mutant("keeps-specs", CDI_003="CDI specs remain", KEP_006="CDI specs remain"),
    _mutant("missing-mount", CDI_004="not exist on the host: /conformance/absent"),
    _mutant("missing-node", CDI_004="cannot apply", KEP_005="cannot apply"),
    _mutant("one-cdi-device", CDI_005="both requests get"),
    _mutant("edits-for-all", CDI_006="gets more when the claim has another request"),
    _mutant("static-names", CDI_007="both claims get"),
    _mutant("cleans-directory", CDI_008="changed or removed"),
    _mutant("stumbles-over-others", CDI_008="failed for claim"),
    _mutant("in-place", CDI_009="an incomplete spec was read"),
    # health
    _mutant("silent", timeouts={"health": 0.3}, HLTH_001="no report"),
    _mutant("strange-device", HLTH_002="not published"),
    _mutant("some-devices", timeouts={"health": 0.5}, HLTH_003="does not report all devices"),
    _mutant("odd-health", HLTH_004="health 7"),
    _mutant("future", HLTH_004="is in the future"),
    _mutant("long-message", HLTH_004="2000 characters"),
    _mutant("unadvertised-health", HLTH_005="is not offered, but the driver reports"),
    _mutant("blocked-by-stream", HLTH_006="busy with health"),
    _mutant("one-stream", timeouts={"health": 0.3}, HLTH_007="brought no report"),
    _mutant("reports-once", timeouts={"health": 5}, HLTH_008="no second report"),
    _mutant("stream-ends", HLTH_008="without a second report"),
    # security
    _mutant("open-socket", SEC_001="srw-rw-rw-"),
    _mutant("open-data", SEC_002="everybody can write"),
    _mutant("open-data-directory", SEC_002="everybody can write"),
    _mutant("open-spec", SEC_003="-rw-rw-rw-"),
    _mutant("path-from-uid", SEC_004="removed: "),
    _mutant("dies-of-odd", SEC_005="the process has crashed"),
    _mutant("lists-claims", SEC_006="list resourceclaims"),
    # load
    _mutant("few-at-once", LOAD_001="too many claims at once"),
    _mutant("leaks-files", LOAD_002="open files of the process"),
    _mutant("leaks-specs", LOAD_002="CDI specs remain"),
    _mutant("four-at-most", LOAD_003="too many devices"),
    _mutant("slow", "get-info-waits", real_deadlines=True, LOAD_004="DEADLINE_EXCEEDED"),
    # KEP-5970
    _mutant("guard-never-forgets", KEP_007="held by another claim"),
    # restart
    _mutant("hangs", RST_001="still ran"),
    _mutant("leaves-sockets", RST_002="sockets that remain"),
    _mutant(
        "deletes-slices", RST_003="when the driver ended", ROLL_004="when one instance", ROLL_005="when one instance"
    ),
    _mutant("once", RST_004="before it registered"),
    _mutant("stale-socket", RST_005="before it registered"),
    _mutant("memory-only", RST_006="CDI specs remain", ROLL_002="CDI specs remain"),
    _mutant("names-by-process", RST_007="after the restart differs", ROLL_003="answer differently"),
    _mutant("clears-cdi", RST_008="after the driver has ended"),
    _mutant("rewrites-on-start", timeouts={"quiet": LONG}, RST_009="changed with the restart"),
    _mutant("trips-over-half", RST_010="half prepared"),
    _mutant("guard-in-memory", RST_011="was prepared for two claims", ROLL_006="was prepared for two claims"),
    # rolling
    _mutant("one-socket", ROLL_001="both instances register at"),
    # NRI: registration and protocol
    _mutant("nri", "never-registers", timeouts={"nri_registration": 0.5}, NRI_001="RegisterPlugin has not come"),
    _mutant("nri", "odd-index", NRI_002="plugin index '7' is not of two digits"),
    _mutant("nri", "half-duplex", timeouts={"nri_request": 1.0}, NRI_003="Configure failed with DEADLINE_EXCEEDED"),
    _mutant("nri", "all-events", NRI_004="with NRI 0.3.0, the runtime refuses"),
    _mutant("nri", "sync-error", NRI_005="cannot read the containers"),
    _mutant("nri", "no-parts", NRI_006="does not handle Synchronize in parts"),
    _mutant("nri", "last-part-only", NRI_006="after one message"),
    _mutant("nri", "long-frames", NRI_007="more than 4096"),
    _mutant("nri", "whole-frames", NRI_008="Configure failed with UNAVAILABLE"),
    _mutant("nri", "answers-any-call", NRI_009="FutureEvent: OK"),
    _mutant("nri", "strict-fields", NRI_010="unknown fields"),
    _mutant("nri", "unknown-container-error", NRI_011="StopContainer for an unknown container"),
    _mutant("nri", "slow-with-many", timeouts={"nri_request": 0.5}, NRI_012="DEADLINE_EXCEEDED"),
    _mutant("nri", "updates-by-call", timeouts={"settle": LONG}, NRI_013="calls UpdateContainers"),
    _mutant("nri", "no-state-change", NRI_014="with NRI 0.12"),
    _mutant("nri", "connects-once", timeouts={"nri_reconnect": 0.5}, NRI_015="has not connected again"),
    _mutant("nri", "dies-of-garbage", NRI_016="ended with status 1"),
    # NRI: changes in containers
    _mutant("nri", "empty-cpuset", CTR_001="an empty cpuset"),
    _mutant("nri", "absent-cpu", CTR_001="8-99 are not online"),
    _mutant("nri", "no-pool-updates", CTR_002="belong to a claim"),
    _mutant("nri", "trusts-env", CTR_003="a container that names it"),
    _mutant("nri", "owner-stays", CTR_004="belongs to another container"),
    _mutant("nri", "strict-updates", CTR_005="without ignore_failure"),
    _mutant("nri", "annotates", CTR_006="gets annotations.pinned.example.com/by"),
    _mutant("nri", "updates-shares", CTR_006="changes cpu.shares.value"),
    _mutant("nri", "forgets-on-reconnect", CTR_007="belong to a claim"),
    _mutant("nri", "ignores-synchronize", CTR_008="belong to a claim"),
    _mutant("nri", "leaves-unpinned", CTR_009="is left on all CPUs"),
    _mutant("nri", "memory-only", CTR_010="is not prepared"),
)
