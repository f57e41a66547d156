"""How a driver makes itself known to the kubelet."""

from __future__ import annotations

from pathlib import Path

from dra_sdk.tools.conformance.check import CheckFailed, Level, Need, expect
from dra_sdk.tools.conformance.plugin import HEALTH_VERSIONS, PLUGIN_VERSIONS, TIMING
from dra_sdk.tools.conformance.rpc import to_json
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.conformance.subject import NotServingError
from dra_sdk.wire.validation.names import driver_name

LEVEL = Level("registration", "Registration with the kubelet")
WATCHER = "Kubernetes pkg/kubelet/pluginmanager/pluginwatcher/README.md"
OPERATIONS = "Kubernetes pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go"
DRA_MANAGER = "Kubernetes pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go"
E2E = "Kubernetes test/e2e_node/dra_test.go"
PLUGIN_TYPE = "DRAPlugin"
SOCKET_PATH = 107


@LEVEL.must("REG-001", f"{WATCHER}, Plugin Discovery")
def socket_is_found(run: Run) -> None:
    """A driver places a unix socket, whose name does not start with a dot, in the kubelet's registration directory."""
    try:
        run.start()
    except NotServingError as error:
        raise CheckFailed(str(error)) from error


@LEVEL.must("REG-002", f"{OPERATIONS}, GenerateRegisterPluginFunc")
def answers_who_it_is_within_a_second(run: Run) -> None:
    """GetInfo is answered within one second, which is all that the kubelet gives it."""
    answer = run.driver.registrar.get_info()
    expect(answer.ok, f"GetInfo: {answer.status}")
    first = run.driver.found_in
    expect(first <= TIMING.get_info, f"the first GetInfo after the start took {first:.2f} s")


@LEVEL.must("REG-003", "k8s.io/kubelet pkg/apis/pluginregistration/v1/constants.go, DRAPlugin")
def is_of_the_dra_type(run: Run) -> None:
    """PluginInfo.type is `DRAPlugin`, the only type that is handed to the kubelet's DRA manager."""
    found = run.driver.info.type
    expect(found == PLUGIN_TYPE, f"type is {found!r}", info=to_json(run.driver.info))


@LEVEL.must("REG-004", "k8s.io/api resource/v1 ResourceSliceSpec.Driver")
def has_a_driver_name(run: Run) -> None:
    """PluginInfo.name is the driver's name: a DNS subdomain of at most 63 characters."""
    problems = [str(each) for each in driver_name(run.driver.info.name, "name")]
    expect(not problems, "; ".join(problems), info=to_json(run.driver.info))


@LEVEL.must("REG-005", "k8s.io/kubelet pkg/apis/pluginregistration/v1/api.proto, PluginInfo.endpoint; unix(7)")
def names_its_service_socket(run: Run) -> None:
    """PluginInfo.endpoint is the absolute path of a unix socket, or empty where the registration socket serves both."""
    endpoint = run.driver.info.endpoint
    path = Path(endpoint)
    expect(not endpoint or path.is_absolute(), f"endpoint {endpoint!r} is not absolute")
    expect(not endpoint or path.is_socket(), f"endpoint {endpoint!r} is no socket")
    size = len(bytes(path))
    expect(size <= SOCKET_PATH, f"endpoint {endpoint!r} has {size} bytes, a socket's path has at most {SOCKET_PATH}")


@LEVEL.must("REG-006", f"{DRA_MANAGER}, validateSupportedServices")
def offers_a_version_that_kubelets_know(run: Run) -> None:
    """PluginInfo.supported_versions names at least one of `v1.DRAPlugin` and `v1beta1.DRAPlugin`."""
    found = list(run.driver.info.supported_versions)
    expect(set(found) & set(PLUGIN_VERSIONS), f"supported_versions are {found}", info=to_json(run.driver.info))


@LEVEL.should("REG-007", f"KEP-4381, Communication between kubelet and kubelet plugin; {DRA_MANAGER}")
def offers_the_newest_version_first(run: Run) -> None:
    """`v1.DRAPlugin` is offered, and newer versions come before older ones: kubelets take the first that they know."""
    found = list(run.driver.info.supported_versions)
    expect(next(iter(PLUGIN_VERSIONS)) in found, f"v1.DRAPlugin is not among {found}")
    for family in (PLUGIN_VERSIONS, HEALTH_VERSIONS):
        offered = [each for each in found if each in family]
        expect(offered == sorted(offered, key=list(family).index), f"supported_versions are in the order {found}")


@LEVEL.must("REG-008", f"{OPERATIONS}, notifyPlugin")
def takes_the_news_of_its_registration(run: Run) -> None:
    """NotifyRegistrationStatus with plugin_registered=true is answered with OK; else the kubelet drops the driver."""
    first = run.driver.notified
    expect(first.ok, f"NotifyRegistrationStatus: {first.status}")


@LEVEL.must("REG-009", f"{E2E}, must recover and register after NotifyRegistrationStatus failure", Need.ALONE)
def survives_a_refusal(run: Run) -> None:
    """A driver that the kubelet refuses to register stays there, and is registered when the kubelet tries again."""
    registrar = run.driver.registrar
    registrar.notify("refused, to see what comes of it")
    expect(not run.subject.died, run.subject.died)
    again = registrar.get_info()
    expect(again.ok, f"GetInfo after the refusal: {again.status}")
    news = registrar.notify()
    expect(news.ok, f"NotifyRegistrationStatus after the refusal: {news.status}")
    answer = run.subject.prepare([])
    expect(answer.ok, f"NodePrepareResources after the refusal: {answer.status}")


@LEVEL.must("REG-010", f"{E2E}, must register after Kubelet restart")
def registers_again_after_a_kubelet_restart(run: Run) -> None:
    """A kubelet that was restarted finds the same socket, gets the same PluginInfo and registers the driver again."""
    registrar = run.driver.connect_registrar()
    try:
        again = registrar.get_info()
        expect(again.message == run.driver.info, "GetInfo differs from the first", first=to_json(run.driver.info))
        news = registrar.notify()
        expect(news.ok, f"NotifyRegistrationStatus: {news.status}")
    finally:
        registrar.channel.close()


@LEVEL.must("REG-011", f"{WATCHER}, Monitoring Plugin Connection", Need.RESTART)
def serves_as_soon_as_it_registers(run: Run) -> None:
    """The service answers by the time that GetInfo does, because the kubelet may call it at once."""
    first = run.driver.first_call
    expect(first.ok, f"NodePrepareResources right after GetInfo: {first.status}")


@LEVEL.should("REG-012", f"{WATCHER}, Plugin Discovery")
def names_the_socket_after_itself(run: Run) -> None:
    """The registration socket's file name starts with the driver's name and ends in `.sock`, so that none collide."""
    name, driver = run.driver.registration.name, run.driver.info.name
    expect(name.startswith(driver) and name.endswith(".sock"), f"driver {driver} calls its socket {name}")
