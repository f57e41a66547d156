"""The registration service: the kubelet finds its socket in plugins_registry and asks for the driver's name.

Source: k8s.io/kubelet pkg/apis/pluginregistration/v1. The kubelet waits one second for GetInfo, so nothing here blocks.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from threading import Condition, Event
from time import monotonic

import grpc

from dra_sdk.rpc.client import call
from dra_sdk.rpc.server import Method, unary
from dra_sdk.wire.proto import pluginregistration_v1_pb2 as wire

log = logging.getLogger(__name__)
SERVICE = "pluginregistration.Registration"
PROBE_SECONDS = 1.0  # the kubelet waits no longer for GetInfo
RESTART_SECONDS = 3.0
"""How long a kubelet that seems to have restarted may take to register the driver: one attempt may fail, after which it
tries again within two seconds."""


def get_info(socket: Path) -> wire.PluginInfo:
    """Call GetInfo on our own registration socket as the kubelet does. DraError if it does not answer."""
    info: wire.PluginInfo = call(socket, f"/{SERVICE}/GetInfo", wire.InfoRequest(), wire.PluginInfo, PROBE_SECONDS)
    return info


class Registration:
    """Answers the kubelet's two registration calls and remembers the outcome.

    registered: set while the kubelet has accepted the driver.
    error: the last error that the kubelet sent; empty if it sent none.
    """

    def __init__(self, driver: str, endpoint: Path, versions: Sequence[str]) -> None:
        self._info = wire.PluginInfo(
            type="DRAPlugin", name=driver, endpoint=str(endpoint), supported_versions=list(versions)
        )
        self.registered = Event()
        self.error = ""
        self._changed = Condition()  # guards the next five
        self._is_ending = False
        self._accepted = 0  # times that the kubelet has accepted the driver
        self._reported = 1  # of these, not news any more: 1, because our own registration is none
        self._reported_at = float("-inf")
        self._waited_at = float("-inf")  # when the last wait ended in vain

    def methods(self) -> dict[str, Method]:
        """Return the handlers of the service, by method name."""
        return {
            "GetInfo": unary(lambda _request, _context: self._info, wire.InfoRequest, wire.PluginInfo),
            "NotifyRegistrationStatus": unary(self._notify, wire.RegistrationStatus, wire.RegistrationStatusResponse),
        }

    def wait_for_kubelet_restart(self) -> bool:
        """Wait up to `RESTART_SECONDS` for the kubelet to register the driver again; False if it does not.

        A kubelet that starts deletes the slices of all drivers of its node, and registers the drivers a moment before
        or after that. Each pool asks, so for the same time after an answer there is no further wait.
        """
        with self._changed:
            if monotonic() - self._reported_at < RESTART_SECONDS:
                return True
            patience = 0.0 if monotonic() - self._waited_at < RESTART_SECONDS else RESTART_SECONDS
            self._changed.wait_for(lambda: self._accepted > self._reported or self._is_ending, patience)
            if self._accepted <= self._reported:
                if patience:
                    self._waited_at = monotonic()
                return False
            self._reported, self._reported_at = self._accepted, monotonic()
            return True

    def wait_registered(self, seconds: float) -> bool:
        """Wait until the kubelet has accepted the driver, or the process ends; False after `seconds`."""
        with self._changed:
            return self._changed.wait_for(lambda: self.registered.is_set() or self._is_ending, seconds)

    def end_waits(self) -> None:
        """End all waits and those to come: the process is about to end."""
        with self._changed:
            self._is_ending = True
            self._changed.notify_all()

    def _notify(
        self, status: wire.RegistrationStatus, _context: grpc.ServicerContext
    ) -> wire.RegistrationStatusResponse:
        if status.plugin_registered:
            self.error = ""
            self.registered.set()
            with self._changed:
                self._accepted += 1
                self._changed.notify_all()
            log.info("registered with the kubelet as %s", self._info.name)
        else:
            # The kubelet tries again by itself. If the process ended, prepared claims could not be answered.
            self.error = status.error or "the kubelet gave no reason"
            self.registered.clear()
            log.error("the kubelet refused to register %s: %s", self._info.name, self.error)
        return wire.RegistrationStatusResponse()
