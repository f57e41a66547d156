"""Loading drivers: from distributions really installed on sys.path, and every way in which one can be wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from dra_sdk import (
    AllocatedDevice,
    Claim,
    Device,
    DriverInfo,
    Gauge,
    HardwareError,
    HeldClaim,
    Node,
    OpaqueConfig,
    PreparedDevice,
    ResourcePool,
)
from dra_sdk.errors import DriverLoadError, HookError, PermanentError
from dra_sdk.extensions import Step, hookimpl
from dra_sdk.loader import Driver, find_driver, iter_drivers, load_driver, origin
from dra_sdk.nri import Container, ContainerAdjustment, ContainerResources, PodSandbox

GOOD = """
from dra_sdk import DriverInfo
class Good:
    def dra_driver_info(self): return DriverInfo("{name}.example.com")
    def dra_discover(self, node): return []
    def dra_prepare(self, claim): return []
"""
Install = Callable[..., None]
HELD = HeldClaim("default", "claim", "u-1")


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a distribution with one module and its entry points, as pip would lay it out."""
    before = set(sys.modules)

    def put(
        dist: str,
        drivers: dict[str, str],
        modules: dict[str, str],
        group: str = "dra_sdk.drivers",
        requires: Sequence[str] = (),
    ) -> None:
        site = tmp_path / dist
        info = site / f"{dist}-1.2.dist-info"
        info.mkdir(parents=True)
        needed = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: 1.2\n" + needed)
        lines = "".join(f"{name} = {target}\n" for name, target in drivers.items())
        (info / "entry_points.txt").write_text(f"[{group}]\n{lines}")
        for name, code in modules.items():
            (site / f"{name}.py").write_text(code)
        monkeypatch.syspath_prepend(site)

    yield put
    for name in set(sys.modules) - before:
        if name.startswith("mod_"):
            del sys.modules[name]


class Lamp:
    """The smallest driver."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("lamp.example.com")

    def dra_discover(self, node: Node) -> list[Any]:
        return []

    def dra_prepare(self, claim: Any) -> list[Any]:
        return []


class OneConfig(OpaqueConfig, api_version="lamp.example.com/v1"):
    pass


class AnotherConfig(OpaqueConfig, api_version="lamp.example.com/v1", kind="OneConfig"):
    pass


class NamelessConfig(OpaqueConfig):
    pass


def with_info(info: Any) -> Lamp:
    class Told(Lamp):
        def dra_driver_info(self) -> Any:
            if isinstance(info, BaseException):
                raise info
            return info

    return Told()


def test_a_driver_is_found_by_its_entry_point_and_knows_where_it_comes_from(install: Install) -> None:
    install("alpha", {"a-lamp": "mod_alpha:Good"}, {"mod_alpha": GOOD.format(name="alpha")})
    assert "a-lamp" in [entry_point.name for entry_point in iter_drivers()]
    assert "mod_alpha" not in sys.modules
    assert origin(find_driver("a-lamp")) == "alpha 1.2"
    driver = load_driver("a-lamp")
    assert driver.info == DriverInfo("alpha.example.com")
    assert driver.info.cdi_kind == "alpha.example.com/device"
    assert driver.discover(Node("n")) == [ResourcePool("n", [])]
    assert "a-lamp" in driver.source
    assert "alpha 1.2" in driver.source


def test_a_driver_that_is_not_installed_is_loaded_by_module_and_class(install: Install) -> None:
    install("beta", {}, {"mod_beta": GOOD.format(name="beta")})
    assert load_driver("mod_beta:Good").info.name == "beta.example.com"


def test_a_module_may_be_a_driver(install: Install) -> None:
    code = GOOD.format(name="gamma").replace("class Good:\n", "").replace("    def", "def").replace("(self, ", "(")
    install("gamma", {"g-lamp": "mod_gamma"}, {"mod_gamma": code.replace("(self)", "()")})
    assert load_driver("g-lamp").info.name == "gamma.example.com"


def test_an_unknown_driver_is_told_with_the_known_ones(install: Install) -> None:
    install("alpha", {"a-lamp": "mod_alpha:Good"}, {"mod_alpha": GOOD.format(name="alpha")})
    with pytest.raises(DriverLoadError, match=r"unknown driver 'b-lamp'; installed drivers: .*a-lamp"):
        load_driver("b-lamp")


def test_two_distributions_with_one_driver_name_are_refused_by_name(install: Install) -> None:
    install("alpha", {"a-lamp": "mod_alpha:Good"}, {"mod_alpha": GOOD.format(name="alpha")})
    install("beta", {"a-lamp": "mod_beta:Good"}, {"mod_beta": GOOD.format(name="beta")})
    with pytest.raises(DriverLoadError, match="installed more than once") as caught:
        load_driver("a-lamp")
    for expected in ("alpha 1.2", "beta 1.2", "mod_alpha:Good", "mod_beta:Good", "uninstall"):
        assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("mod_net_link", "needs mod_net_link, which is not installed: pip install 'mod-net.link<2,>=1'"),
        ("mod_net_link.inner", "needs mod_net_link, which is not installed: pip install 'mod-net.link<2,>=1'"),
        ("mod_always", "needs mod_always, which is not installed: pip install 'mod-always'"),
        ("mod_absent", "failed to load: ModuleNotFoundError: No module named 'mod_absent' (mod_alpha.py, line 1)"),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    install: Install, module: str, command: str
) -> None:
    requires = ["mod-always", "mod-net.link<2,>=1; extra == 'net'", "pytest; extra == 'dev'"]
    install("alpha", {"a-lamp": "mod_alpha:Good"}, {"mod_alpha": f"import {module}"}, requires=requires)
    with pytest.raises(DriverLoadError) as caught:
        load_driver("a-lamp")
    assert str(caught.value) == f"driver 'a-lamp' (mod_alpha:Good of alpha 1.2) {command}"


@pytest.mark.parametrize("allowed", ["<0.1", ">=900", "==0.0.7"])
def test_a_distribution_for_another_sdk_is_named_with_both_versions(install: Install, allowed: str) -> None:
    code = {"mod_alpha": GOOD.format(name="alpha")}
    install("alpha", {"a-lamp": "mod_alpha:Good"}, code, requires=[f"DRA_SDK{allowed}"])
    with pytest.raises(DriverLoadError) as caught:
        load_driver("a-lamp")
    assert str(caught.value) == (
        f"driver 'a-lamp' (mod_alpha:Good of alpha 1.2) is for dra-sdk {allowed}, and dra-sdk {version('dra-sdk')} "
        "is installed: install a driver and an SDK that go together"
    )


def test_a_distribution_for_this_sdk_is_loaded(install: Install) -> None:
    code = {"mod_alpha": GOOD.format(name="alpha")}
    install("alpha", {"a-lamp": "mod_alpha:Good"}, code, requires=["dra-sdk>=0.0.7,<900"])
    assert load_driver("a-lamp").info.name == "alpha.example.com"


@pytest.mark.parametrize("line", ["dra-sdk>=900; extra == 'next'", "dra-sdk>=900; python_version < '3'", "mod>=1.*bar"])
def test_a_requirement_for_another_case_or_of_an_old_form_refuses_no_driver(install: Install, line: str) -> None:
    install("alpha", {"a-lamp": "mod_alpha:Good"}, {"mod_alpha": GOOD.format(name="alpha")}, requires=[line])
    assert load_driver("a-lamp").info.name == "alpha.example.com"


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import mod_that_does_not_exist", "ModuleNotFoundError"),
        ("raise RuntimeError('no NVML')", "RuntimeError: no NVML"),
        ("import sys; sys.exit('no licence')", "SystemExit: no licence"),
        ("class Good(:", "SyntaxError"),
        ("", "AttributeError"),
        ("class Good:\n    def __init__(self): raise OSError('no /dev/x')", "OSError: no /dev/x"),
        ("class Good:\n    def __init__(self, needed): pass", "TypeError"),
    ],
)
def test_a_broken_driver_is_named_with_the_reason_and_disturbs_no_other(
    install: Install, code: str, reason: str
) -> None:
    install("broken", {"b-lamp": "mod_broken:Good"}, {"mod_broken": code})
    install("alpha", {"a-lamp": "mod_alpha:Good"}, {"mod_alpha": GOOD.format(name="alpha")})
    with pytest.raises(DriverLoadError) as caught:
        load_driver("b-lamp")
    for expected in ("'b-lamp'", "mod_broken:Good", "broken 1.2", reason):
        assert expected in str(caught.value)
    assert load_driver("a-lamp").info.name == "alpha.example.com"
    assert {"a-lamp", "b-lamp"} <= {entry_point.name for entry_point in iter_drivers()}


def test_two_drivers_in_one_process_answer_for_themselves(install: Install) -> None:
    install("alpha", {"a-lamp": "mod_alpha:Good"}, {"mod_alpha": GOOD.format(name="alpha")})
    install("beta", {"b-lamp": "mod_beta:Good"}, {"mod_beta": GOOD.format(name="beta")})
    first, second = load_driver("a-lamp"), load_driver("b-lamp")
    assert first.info.name == "alpha.example.com"
    assert second.info.name == "beta.example.com"


def test_a_misspelt_hook_is_refused_with_the_right_names() -> None:
    class Misspelt(Lamp):
        def dra_preprae(self, claim: Any) -> None: ...

    with pytest.raises(DriverLoadError, match=r"unknown hook 'dra_preprae'.*hooks are .*dra_prepare"):
        Driver.of(Misspelt())


def test_an_argument_that_the_hook_does_not_have_is_refused() -> None:
    class Wrong(Lamp):
        def dra_prepare(self, claims: Any) -> list[Any]:
            return []

    with pytest.raises(DriverLoadError, match=r"dra_prepare.*claims"):
        Driver.of(Wrong())


def test_arguments_may_be_left_out_and_added_with_a_default() -> None:
    class Short(Lamp):
        def dra_discover(self, count: int = 3) -> list[Device]:
            return [Device(f"lamp-{index}") for index in range(count)]

    (pool,) = Driver.of(Short()).discover(Node("n"))
    assert [device.name for device in pool.devices] == ["lamp-0", "lamp-1", "lamp-2"]


def test_async_hooks_are_refused() -> None:
    class Async(Lamp):
        async def dra_prepare(self, claim: Any) -> list[Any]:
            return []

    class AsyncGenerator(Lamp):
        async def dra_prepare(self, claim: Any) -> Any:
            yield None

    class AsyncStatic(Lamp):
        @staticmethod
        async def dra_unprepare(claim: Any) -> None: ...

    for plugin, hook in ((Async(), "dra_prepare"), (AsyncGenerator(), "dra_prepare"), (AsyncStatic(), "dra_unprepare")):
        with pytest.raises(DriverLoadError, match=f"hook {hook} is async"):
            Driver.of(plugin)


@pytest.mark.parametrize("hook", ["dra_unprepare", "dra_watch"])
def test_a_hook_that_yields_where_nobody_would_run_it_is_refused(hook: str) -> None:
    def yields(self: Any) -> Iterator[None]:
        yield

    with pytest.raises(DriverLoadError, match=f"hook {hook} yields, so it would never run"):
        Driver.of(type("Yields", (Lamp,), {hook: yields})())


def test_missing_hooks_are_named() -> None:
    class Empty:
        pass

    class OnlyInfo:
        def dra_driver_info(self) -> DriverInfo:
            return DriverInfo("x.example.com")

    with pytest.raises(
        DriverLoadError, match=r"lacks the required hooks dra_driver_info, dra_discover and dra_prepare$"
    ):
        Driver.of(Empty())
    with pytest.raises(DriverLoadError, match=r"lacks the required hooks dra_discover and dra_prepare$"):
        Driver.of(OnlyInfo())


def test_only_three_hooks_are_required() -> None:
    driver = Driver.of(Lamp())
    assert driver.implements("dra_prepare")
    assert not driver.implements("dra_unprepare")
    driver.unprepare(HELD, Node("n"))


def test_the_decorator_is_optional() -> None:
    undone: list[HeldClaim] = []

    class Decorated(Lamp):
        @hookimpl
        def dra_unprepare(self, claim: HeldClaim) -> None:
            undone.append(claim)

    Driver.of(Decorated()).unprepare(HELD, Node("n"))
    assert undone == [HELD]


def test_loading_runs_no_property_of_the_driver() -> None:
    class Lazy(Lamp):
        @property
        def dra_root(self) -> str:
            raise AssertionError("evaluated")

        @property
        def library(self) -> str:
            raise AssertionError("evaluated")

    assert Driver.of(Lazy()).info.name == "lamp.example.com"


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        (None, "returned None, want a DriverInfo"),
        ("lamp.example.com", "returned 'lamp.example.com', want a DriverInfo"),
        (RuntimeError("no card"), "dra_driver_info failed: RuntimeError: no card"),
        (SystemExit(2), "dra_driver_info failed: SystemExit: 2"),
        (DriverInfo(""), "driver name ''"),
        (DriverInfo("Lamp.example.com"), "lower-case DNS subdomain"),
        (DriverInfo("lamp_x.example.com"), "lower-case DNS subdomain"),
        (DriverInfo("lamp..example.com"), "lower-case DNS subdomain"),
        (DriverInfo("-lamp.example.com"), "lower-case DNS subdomain"),
        (DriverInfo("lamp.example.com\n"), "lower-case DNS subdomain"),
        (DriverInfo("../lamp"), "lower-case DNS subdomain"),
        (DriverInfo("a" * 64), "at most 63 characters"),
        (DriverInfo(None), "driver name None"),
        (DriverInfo("lamp.example.com", configs=[NamelessConfig]), "config class NamelessConfig needs an API version"),
        (DriverInfo("lamp.example.com", configs=[OneConfig, AnotherConfig]), "share apiVersion .*/v1 and kind OneCo"),
        (DriverInfo("lamp.example.com", configs=OneConfig), "configs must be a list"),
        (DriverInfo("lamp.example.com", configs=[dict]), "configs must be a list"),  # type: ignore[list-item]
        (DriverInfo("lamp.example.com", configs=iter([OneConfig])), "configs must be a list"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(info: Any, reason: str) -> None:
    with pytest.raises(DriverLoadError, match=reason) as caught:
        Driver.of(with_info(info))
    assert "test_driver" in str(caught.value), "the message does not name the driver"


def test_several_kinds_of_configuration_are_accepted() -> None:
    class TwoConfig(OpaqueConfig, api_version="lamp.example.com/v1"):
        pass

    class OneConfigLater(OpaqueConfig, api_version="lamp.example.com/v2", kind="OneConfig"):
        pass

    configs = [OneConfig, TwoConfig, OneConfigLater]
    assert Driver.of(with_info(DriverInfo("lamp.example.com", configs=configs))).info.configs == configs


@pytest.mark.parametrize("name", ["a", "a" * 63, "1gpu.example.com", "gpu.example.com"])
def test_names_up_to_the_limit_are_accepted(name: str) -> None:
    assert Driver.of(with_info(DriverInfo(name))).info.name == name


class Log:
    """An extension that wraps hooks, as an audit would."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    @hookimpl(wrapper=True)
    def dra_discover(self, node: Node) -> Any:
        self.seen.append(f"before {node.name}")
        devices = yield
        self.seen.append(f"after {devices}")
        return [*devices, Device("extra")]

    @hookimpl(wrapper=True)
    def dra_unprepare(self, claim: Any) -> Any:
        self.seen.append("unprepare")
        return (yield)


def test_wrappers_of_an_extension_run_around_the_hooks() -> None:
    log = Log()
    driver = Driver.of(Lamp(), [log])
    assert driver.discover(Node("n1")) == [ResourcePool("n1", [Device("extra")])]
    assert log.seen == ["before n1", "after []"]


def test_a_wrapper_of_a_hook_that_the_driver_lacks_does_not_count() -> None:
    log = Log()
    driver = Driver.of(Lamp(), [log])
    assert not driver.implements("dra_unprepare")
    driver.unprepare(HELD, Node("n"))
    assert log.seen == ["unprepare"]


def test_a_wrapper_does_not_stand_in_for_a_required_hook() -> None:
    class NoDiscover:
        def dra_driver_info(self) -> DriverInfo:
            return DriverInfo("x.example.com")

        def dra_prepare(self, claim: Any) -> list[Any]:
            return []

    with pytest.raises(DriverLoadError, match="lacks the required hook dra_discover"):
        Driver.of(NoDiscover(), [Log()])


def test_a_wrapper_can_inject_a_failure() -> None:
    class Fault:
        @hookimpl(wrapper=True)
        def dra_discover(self, node: Node) -> Any:
            yield
            raise OSError("injected")

    with pytest.raises(HookError, match=r"dra_discover of driver \S+ failed: OSError: injected"):
        Driver.of(Lamp(), [Fault()]).discover(Node("n"))


def test_a_driver_has_no_hooks_of_extensions() -> None:
    class Curious(Lamp):
        def dra_step(self, step: Step) -> None: ...

    with pytest.raises(DriverLoadError, match="unknown hook 'dra_step'"):
        Driver.of(Curious())


def test_an_extension_must_not_answer_in_place_of_the_driver() -> None:
    class Usurper:
        def dra_prepare(self, claim: Any) -> list[Any]:
            return ["mine"]

    with pytest.raises(DriverLoadError, match="Usurper: dra_prepare answers in place of the driver"):
        Driver.of(Lamp(), [Usurper()])


def test_installed_extensions_wrap_every_driver_and_errors_name_them(install: Install) -> None:
    install("alpha", {"a-lamp": "mod_alpha:Good"}, {"mod_alpha": GOOD.format(name="alpha")})
    wrapper = """
from dra_sdk import Device
from dra_sdk.extensions import hookimpl
class Twice:
    @hookimpl(wrapper=True)
    def dra_discover(self):
        devices = yield
        return devices + [Device("seen")]
"""
    install("audit", {"audit": "mod_audit:Twice"}, {"mod_audit": wrapper}, group="dra_sdk.extensions")
    assert load_driver("a-lamp").discover(Node("n")) == [ResourcePool("n", [Device("seen")])]
    broken = "class Bad:\n    def dra_discuver(self): ...\n"
    install("worse", {"worse": "mod_worse:Bad"}, {"mod_worse": broken}, group="dra_sdk.extensions")
    with pytest.raises(DriverLoadError, match=r"extension 'worse' \(mod_worse:Bad of worse 1.2\): unknown hook"):
        load_driver("a-lamp")


@pytest.mark.parametrize("kind", ["v/device", "lamps.example.com/d", "/device"])
def test_a_cdi_kind_that_would_crash_the_runtime_is_refused(kind: str) -> None:
    class Short(Lamp):
        def dra_driver_info(self) -> DriverInfo:
            return DriverInfo("lamps.example.com", cdi_kind=kind)

    with pytest.raises(DriverLoadError, match="need two characters or more"):
        Driver.of(Short())


DEVICES = (AllocatedDevice("r", "n", "lamp-0", None), AllocatedDevice("r", "n", "lamp-1", None))
CLAIM: Claim[OpaqueConfig | None] = Claim("default", "claim", "u-1", Node("n"), DEVICES)


class Steps(Lamp):
    """Prepares one device after the other and notes when it is closed."""

    def __init__(self) -> None:
        self.closed = False

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        try:
            for device in claim.devices:
                yield device.prepared()
        finally:
            self.closed = True


def test_prepared_devices_come_one_by_one_and_closing_closes_the_hook() -> None:
    plugin = Steps()
    answers = Driver.of(plugin).prepare(CLAIM)
    assert next(answers).name == "lamp-0"
    assert not plugin.closed
    answers.close()
    assert plugin.closed


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "dra_prepare of driver lamp.example.com returned None, want prepared devices"),
        ("lamp-0", "returned 'lamp-0', want prepared devices"),
        ([3], r"yielded 3, want device.prepared\(...\)"),
        ([PreparedDevice("r", "n", "lamp-0", edits="-v")], "edits of device n/lamp-0 must be ContainerEdits, are '-v'"),
    ],
)
def test_what_is_no_prepared_device_is_an_error_of_the_hook(answer: Any, reason: str) -> None:
    class Wrong(Lamp):
        def dra_prepare(self, claim: Any) -> Any:
            return answer

    with pytest.raises(HookError, match=reason):
        list(Driver.of(Wrong()).prepare(CLAIM))


@pytest.mark.parametrize(
    "hook", ["dra_discover", "dra_prepare", "dra_unprepare", "dra_watch", "dra_device_health", "dra_top", "dra_metrics"]
)
def test_whatever_a_hook_raises_is_an_error_that_names_driver_hook_and_line(hook: str) -> None:
    def fails(self: object, node: object = None, stop: object = None) -> Any:
        raise KeyError("card")

    driver = Driver.of(type("Fails", (Lamp,), {hook: fails})())
    calls: dict[str, Callable[[], object]] = {
        "dra_discover": lambda: driver.discover(Node("n")),
        "dra_prepare": lambda: list(driver.prepare(CLAIM)),
        "dra_unprepare": lambda: driver.unprepare(HELD, Node("n")),
        "dra_watch": lambda: driver.watch(Node("n"), lambda: None, Event()),
        "dra_device_health": lambda: list(driver.device_health(Node("n"), Event())),
        "dra_top": lambda: driver.top(Node("n"), [HELD]),
        "dra_metrics": lambda: driver.metrics(Node("n"), [HELD]),
    }
    reason = rf"{hook} of driver lamp.example.com failed: KeyError: 'card' \(test_driver.py, line \d+\)"
    with pytest.raises(HookError, match=reason) as caught:
        calls[hook]()
    assert isinstance(caught.value.__cause__, KeyError)


def test_what_the_sdk_raises_inside_a_hook_passes_unchanged() -> None:
    class Careful(Lamp):
        def dra_discover(self, node: Node) -> Any:
            raise HardwareError("/sys/class/lamp: no lamp")

    with pytest.raises(HardwareError, match=r"no lamp$"):
        Driver.of(Careful()).discover(Node("n"))


@pytest.mark.parametrize(("answer", "told"), [("AA", "'AA'"), (None, "None"), ([b"A"], r"\['bytes'\]")])
def test_a_picture_is_lines_of_text(answer: Any, told: str) -> None:
    driver = Driver.of(type("Draws", (Lamp,), {"dra_top": lambda self: answer})())
    with pytest.raises(HookError, match=f"dra_top of driver lamp.example.com .*{told}.* want lines of text"):
        driver.top(Node("n"), [])


LIT = Gauge("lamp_lit", "Lamps that are lit", 2, {"room": "hall"})


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "dra_metrics of driver lamp.example.com returned None, want Gauge values"),
        ([LIT, 3], r"yielded \['Gauge', 'int'\]; want Gauge values only"),
        (
            [replace(LIT, name="dra_sdk_lit")],
            "'dra_sdk_lit' must be letters, digits and _, and not begin with dra_sdk_",
        ),
        ([replace(LIT, name="lamp-lit")], "'lamp-lit' must be letters"),
        ([replace(LIT, value="2")], "the value of lamp_lit must be a number, is '2'"),
        ([replace(LIT, value=True)], "the value of lamp_lit must be a number, is True"),
        ([replace(LIT, help=None)], "the help of lamp_lit must be text, is None"),
        ([replace(LIT, labels={"driver": "x"})], "lamp_lit: 'driver' is no label of a driver's own"),
        ([replace(LIT, labels={"__room": "x"})], "lamp_lit: '__room' is no label"),
        (
            [replace(LIT, labels={"floor": 1})],
            r"labels of lamp_lit must be a mapping of text to text, are \{'floor': 1\}",
        ),
        ([LIT, replace(LIT, labels={})], "values of lamp_lit differ in their help or in the names of their labels"),
        ([LIT, replace(LIT, help="?", labels={"room": "x"})], "values of lamp_lit differ in their help"),
        ([LIT, replace(LIT, value=3)], r"lamp_lit has two values for the labels \{'room': 'hall'\}"),
    ],
)
def test_metrics_that_prometheus_would_not_take_are_told(answer: Any, told: str) -> None:
    driver = Driver.of(type("Measures", (Lamp,), {"dra_metrics": lambda self: answer})())
    with pytest.raises(HookError, match=told):
        driver.metrics(Node("n"), [])


def test_metrics_may_be_yielded_with_a_value_for_each_label() -> None:
    def measure(self: object, held: Sequence[HeldClaim]) -> Iterator[Gauge]:
        yield replace(LIT, value=len(held))
        yield replace(LIT, value=0.5, labels={"room": "cellar"})

    driver = Driver.of(type("Measures", (Lamp,), {"dra_metrics": measure})())
    assert [gauge.value for gauge in driver.metrics(Node("n"), [HELD])] == [1, 0.5]


# Hooks about pods and containers

POD = PodSandbox("s", "shop", "web", "uid-1")
CONTAINER = Container("c", "main", POD)
TEXT: Any = "0-3"
NUMBER: Any = 1


class Pinning(Lamp):
    """Answers what a test wants."""

    def __init__(self, adjustment: Any = None, wanted: Any = None) -> None:
        self.adjustment, self.wanted = adjustment, wanted
        self.seen: list[object] = []

    def dra_run_pod_sandbox(self, pod: PodSandbox, node: Node) -> None:
        self.seen.append(("run", pod, node.name))

    def dra_stop_pod_sandbox(self, pod: PodSandbox) -> None:
        self.seen.append(("stop", pod))

    def dra_create_container(self, container: Container, held: Any) -> Any:
        self.seen.append(("create", container, held))
        return self.adjustment

    def dra_synchronize(self, containers: Any, held: Any) -> Any:
        self.seen.append(("synchronize", containers, held))
        return self.wanted

    def dra_remove_container(self, container: Container) -> None:
        self.seen.append(("remove", container))


def test_every_hook_about_containers_is_a_method() -> None:
    plugin = Pinning(ContainerAdjustment(env={"A": "b"}), {"c": ContainerResources(cpus=frozenset({1}))})
    driver = Driver.of(plugin)
    assert driver.is_nri_plugin
    driver.run_pod_sandbox(POD, Node("n"))
    assert driver.create_container(CONTAINER, [HELD], Node("n")) is plugin.adjustment
    assert driver.synchronize([CONTAINER], [HELD], Node("n")) == plugin.wanted
    driver.remove_container(CONTAINER, Node("n"))
    driver.stop_pod_sandbox(POD, Node("n"))
    assert plugin.seen == [
        ("run", POD, "n"),
        ("create", CONTAINER, [HELD]),
        ("synchronize", [CONTAINER], [HELD]),
        ("remove", CONTAINER),
        ("stop", POD),
    ]


def test_dra_synchronize_may_refuse_containers() -> None:
    wanted = {"c": PermanentError("no CPU is online")}
    assert Driver.of(Pinning(wanted=wanted)).synchronize([CONTAINER], [], Node("n")) == wanted
    with pytest.raises(HookError, match="resources must be ContainerResources, are OSError"):
        Driver.of(Pinning(wanted={"c": OSError("no CPU")})).synchronize([CONTAINER], [], Node("n"))


@pytest.mark.parametrize("plugin", [Lamp(), Pinning()])
def test_without_a_hook_or_an_answer_nothing_changes(plugin: Lamp) -> None:
    driver = Driver.of(plugin)
    assert driver.is_nri_plugin is isinstance(plugin, Pinning)
    assert driver.create_container(CONTAINER, [], Node("n")) == ContainerAdjustment()
    assert driver.synchronize([CONTAINER], [], Node("n")) == {}


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        ({"cpus": "1"}, "resources must be ContainerResources, are {'cpus': '1'}"),
        (ContainerResources(cpus=frozenset()), "cpus is the empty set, which a container runtime takes as unchanged"),
        (ContainerResources(mems=frozenset()), "mems is the empty set"),
        (ContainerResources(cpus=TEXT), "cpus must be a set of numbers, is '0-3'"),
        (ContainerResources(cpus=frozenset({True})), "cpus must be a set of numbers"),
        (ContainerResources(cpus=frozenset({-1, 2})), "cpus has -1, which is less than 0"),
        (ContainerResources(cpu_quota=0), "cpu_quota must be a number of microseconds, or -1 for no limit, is 0"),
        (ContainerResources(hugepage_limits={"2MB": -1}), "hugepage_limits must be bytes by page size"),
    ],
)
def test_resources_that_no_runtime_takes(resources: Any, problem: str) -> None:
    driver = Driver.of(Pinning(ContainerAdjustment(resources), {"c": resources}))
    with pytest.raises(HookError, match=f"dra_create_container of .* for container main of pod shop/web: {problem}"):
        driver.create_container(CONTAINER, [], Node("n"))
    with pytest.raises(HookError, match=f"dra_synchronize of .* for container main of pod shop/web: {problem}"):
        driver.synchronize([CONTAINER], [], Node("n"))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ("x", "returned 'x', want a ContainerAdjustment"),
        (ContainerAdjustment(env={"A": NUMBER}), "env must be a mapping of text to text"),
        (ContainerAdjustment(env={"-A": ""}), "env: '-A' is not a name"),
        (ContainerAdjustment(env={"A=B": ""}), "env: 'A=B' is not a name"),
        (ContainerAdjustment(annotations={"": ""}), "annotations: '' is not a name"),
    ],
)
def test_adjustments_that_no_runtime_takes(answer: Any, problem: str) -> None:
    with pytest.raises(HookError, match=problem):
        Driver.of(Pinning(answer)).create_container(CONTAINER, [], Node("n"))


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ([ContainerResources()], "want ContainerResources by id"),
        ({"d": ContainerResources()}, "returned container 'd', which it was not given"),
    ],
)
def test_wishes_for_containers_that_are_none(answer: Any, problem: str) -> None:
    with pytest.raises(HookError, match=problem):
        Driver.of(Pinning(wanted=answer)).synchronize([CONTAINER], [], Node("n"))


class Forgetful:
    """Notes what it changes, and never undoes it."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("forgetful.example.com")

    def dra_discover(self, node: Node) -> list[Device]:
        return []

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            claim.journal({"before": "off"})
            yield device.prepared()


class Nested(Forgetful):
    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        def each(device: Any) -> PreparedDevice:
            claim.journal({"before": "off"})
            return device.prepared()  # type: ignore[no-any-return]

        yield from map(each, claim.devices)


class Undoing(Forgetful):
    def dra_unprepare(self, claim: HeldClaim) -> None: ...


class Untouched(Forgetful):
    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        self.journal = [claim.devices]
        yield from (device.prepared() for device in self.journal[0])


@pytest.mark.parametrize("kind", [Forgetful, Nested])
def test_a_journal_that_nothing_would_undo_is_refused_when_the_driver_is_loaded(kind: type) -> None:
    with pytest.raises(DriverLoadError, match=r"dra_prepare calls claim\.journal, but there is no dra_unprepare"):
        Driver.of(kind())


@pytest.mark.parametrize("kind", [Undoing, Untouched])
def test_a_driver_that_undoes_or_notes_nothing_is_loaded(kind: type) -> None:
    assert not Driver.of(kind()).is_nri_plugin
