"""What a user may configure, and what is said about each mistake."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from dra_driver_nic.config import InterfaceConfig, NicConfig, RouteConfig, VrfConfig

from dra_sdk import ConfigError
from dra_sdk.testing import assert_rules_agree


def decode(**fields: Any) -> NicConfig:
    return NicConfig.decode({"apiVersion": "dra.net/v1alpha1", "kind": "NicConfig", **fields})


def test_everything_that_a_user_may_write() -> None:
    config = decode(
        interface={
            "name": "net1",
            "addresses": ["10.1.1.5/24", "FD07::5/64"],
            "mtu": 9000,
            "hardwareAddr": "02:00:00:00:00:AA",
            "arpIgnore": 8,
            "arpAnnounce": 2,
            "sysctls": {"ipv6.conf.accept_ra": "0"},
            "vrf": {"name": "red", "table": 100},
        },
        routes=[{"destination": "0.0.0.0/0", "gateway": "10.1.1.1", "source": "10.1.1.5", "table": 100, "metric": 5}],
        neighbors=[{"destination": "10.1.1.9", "hardwareAddr": "02:00:00:00:00:09"}],
        vf={"vlan": 100, "qos": 3, "trust": True, "spoofchk": False, "maxTxRate": 1000, "linkState": "enable"},
        ethtool={"features": {"tso": False}, "channels": {"combined": 4}, "rings": {"rx": 512, "rxMini": 0}},
        cni={"conflist": "chained"},
        rdma=True,
    )
    assert config.interface.addresses == ("10.1.1.5/24", "fd07::5/64")
    assert config.interface.hardware_addr == "02:00:00:00:00:aa"
    assert NicConfig.decode(config.encode()) == config


def test_vfio_for_a_virtual_machine() -> None:
    assert decode(driver="vfio-pci", iommu={"backendPolicy": "PreferIommuFD"}).driver == "vfio-pci"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"interface": {"names": "net1"}}, r"interface\.names"),
        ({"interface": {"name": "net/1"}}, r"interface\.name.*'net/1'"),
        ({"interface": {"name": "lo"}}, r"interface\.name.*not lo"),
        ({"interface": {"addresses": ["10.1.1.5"]}}, r"interface\.addresses.*must have a prefix length"),
        ({"interface": {"addresses": ["10.1.1.500/24"]}}, r"interface\.addresses.*10\.1\.1\.500"),
        ({"interface": {"addresses": ["224.0.0.1/24"]}}, r"interface\.addresses.*one station"),
        ({"interface": {"addresses": ["10.1.1.5/24", "10.1.1.5/16"]}}, r"addresses contains 10\.1\.1\.5 twice"),
        ({"interface": {"mtu": 67}}, r"interface\.mtu.*68"),
        ({"interface": {"mtu": 70000}}, r"interface\.mtu.*65535"),
        ({"interface": {"hardwareAddr": "02:00:00:00:00"}}, r"interface\.hardwareAddr.*MAC address"),
        ({"interface": {"hardwareAddr": "01:00:00:00:00:01"}}, r"interface\.hardwareAddr.*one station"),
        ({"interface": {"hardwareAddr": "00:00:00:00:00:00"}}, r"interface\.hardwareAddr.*zero"),
        ({"interface": {"arpIgnore": 4}}, r"interface\.arpIgnore"),
        ({"interface": {"sysctls": {"kernel.panic": "1"}}}, r"sysctls.*sysctl of an interface"),
        ({"interface": {"arpIgnore": 1, "sysctls": {"ipv4.conf.arp_ignore": "1"}}}, "arpIgnore set the same value"),
        ({"routes": [{"destination": "10.1.1.1/24", "gateway": "10.1.1.1"}]}, r"routes.*without host bits"),
        ({"routes": [{"destination": "10.1.0.0/16"}]}, r"gateway is missing for destination 10\.1\.0\.0/16"),
        (
            {"routes": [{"destination": "10.1.0.0/16", "gateway": "fd00::1"}]},
            "gateway fd00::1 is IPv6, but",
        ),
        (
            {"routes": [{"destination": "fd00::/64", "gateway": "fd01::1", "source": "10.0.0.1"}]},
            r"source 10\.0\.0\.1 is IPv4, but destination fd00::/64 is IPv6",
        ),
        ({"routes": [{"destination": "10.1.0.0/16", "gateway": "10.0.0.1", "scope": 253}]}, "cannot have scope 253"),
        ({"routes": [{"destination": "10.1.0.0/16", "gateway": "10.0.0.1", "table": 255}]}, "must not be 255"),
        ({"routes": [{"destination": "10.1.0.0/16", "gateway": "10.0.0.1"}] * 2}, r"routes contains 10\.1\.0\.0/16"),
        ({"rules": [{"priority": 5, "table": 100}]}, "source or destination must be given"),
        ({"rules": [{"priority": 0, "table": 100, "source": "10.0.0.0/8"}]}, r"rules.*priority"),
        (
            {"rules": [{"priority": 5, "table": 100, "source": "10.0.0.0/8", "destination": "fd00::/64"}]},
            "source 10.0.0.0/8 is IPv4, but destination fd00::/64 is IPv6",
        ),
        ({"neighbors": [{"ipAddress": "10.0.0.1", "hardwareAddr": "02:00:00:00:00:01"}]}, r"neighbors.*ipAddress"),
        ({"interface": {"dhcp": True, "addresses": ["10.1.1.5/24"]}}, "addresses cannot be given with dhcp"),
        ({"interface": {"dhcp": "yes"}}, r"interface\.dhcp"),
        ({"interface": {"vrf": {"table": 100}}}, r"interface\.vrf\.name"),
        ({"interface": {"vrf": {"name": "red", "table": 254}}}, r"interface\.vrf\.table.*must not be 254"),
        ({"interface": {"name": "red", "vrf": {"name": "red"}}}, r"vrf\.name and name are both red"),
        (
            {"interface": {"vrf": {"name": "red"}}, "rules": [{"priority": 5, "table": 9, "source": "10.0.0.0/8"}]},
            r"rules cannot be given with interface\.vrf",
        ),
        ({"ethtool": {"features": {"tso": "off"}}}, r"ethtool\.features\.tso"),
        ({"ethtool": {"features": {"T S O": True}}}, r"ethtool\.features.*'T S O'"),
        ({"ethtool": {"channels": {"all": 4}}}, r"ethtool\.channels"),
        ({"ethtool": {"rings": {"rx": -1}}}, r"ethtool\.rings\.rx"),
        ({"cni": {}}, r"cni\.conflist"),
        ({"cni": {"conflist": "../x"}}, r"cni\.conflist.*name of a CNI network"),
        ({"driver": "vfio-pci", "cni": {"conflist": "x"}}, "cannot be given with driver vfio-pci"),
        ({"vf": {"vlan": 4095}}, r"vf\.vlan.*4094"),
        ({"vf": {"qos": 3}}, "qos 3 needs vlan, and another one than 0"),
        ({"vf": {"qos": 3, "vlan": 0}}, "qos 3 needs vlan, and another one than 0"),
        ({"vf": {"trust": "yes"}}, r"vf\.trust"),
        ({"vf": {"minTxRate": 10, "maxTxRate": 5}}, "minTxRate 10 must not exceed maxTxRate 5"),
        ({"driver": "igb_uio"}, r"driver.*vfio-pci"),
        ({"driver": "vfio-pci", "rdma": True}, "rdma cannot be given with driver vfio-pci"),
        ({"driver": "vfio-pci", "interface": {"mtu": 9000}}, "cannot be given with driver vfio-pci"),
    ],
)
def test_a_mistake_is_reported_with_its_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        decode(**fields)


def test_a_configuration_without_interface_fits_devices_that_have_none() -> None:
    assert not NicConfig(rdma=True).configures_interface
    assert NicConfig(interface=InterfaceConfig(mtu=9000)).configures_interface
    assert NicConfig(routes=(RouteConfig(destination="10.0.0.0/8", scope=253),)).configures_interface


def test_the_configuration_in_the_readme_is_valid() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(), re.DOTALL)
    (template,) = [block for block in map(yaml.safe_load, blocks) if block["kind"] == "ResourceClaimTemplate"]
    (entry,) = template["spec"]["spec"]["devices"]["config"]
    assert NicConfig.decode(entry["opaque"]["parameters"]).interface.name == "net1"


def test_the_table_of_a_vrf_without_one_is_that_of_dranet() -> None:
    assert VrfConfig(name="red", table=7).number == 7
    hashes = {"a": 0xE40C292C, "foobar": 0xBF9CF968}
    assert {name: VrfConfig(name=name).number for name in hashes} == {
        name: 1000 + number % 1000 for name, number in hashes.items()
    }


def test_an_admission_policy_refuses_what_the_driver_refuses() -> None:
    """To look for a neighbour twice among 256 would cost more than a policy may."""
    (notice,) = assert_rules_agree(NicConfig)
    assert "neighbors contains 10.0.0.1 twice" in notice
