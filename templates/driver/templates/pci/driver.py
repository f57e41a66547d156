{% extends "card/driver.py" %}
{% block what %}PCI cards whose kernel driver makes device nodes, and whose settings a claim changes.{% endblock %}
{% block paths -%}
from pathlib import Path
{% endblock %}
{% block names %}    HeldClaim,
{% endblock %}
{% block config %}    """What a claim may set: whether the kernel may suspend the card (`auto`) or not (`on`)."""

    power: Literal["auto", "on"] = "auto"
{% endblock %}
{% block info %}        """Return the name, and the classes of configuration."""
{% endblock %}
{% block prepare %}        """Set up each card, and say what its containers get. The journal, written first, is for `dra_unprepare`."""
        for device in claim.devices:
            control = device.hardware.path / "power/control"
            if not device.admin_access:  # another claim may hold the card, so nothing is changed
                claim.journal({"file": str(control), "before": control.read_text()})
                control.write_text(device.config.power)
            nodes = [DeviceNode(device_file(path)) for path in sorted((device.hardware.path / SUBSYSTEM).glob("*"))]
            yield device.prepared(ContainerEdits(device_nodes=nodes))

    def dra_unprepare(self, claim: HeldClaim) -> None:
        """Restore what the journal records, newest first; nothing of a card that was unplugged."""
        for entry in reversed(claim.journal):
            with claim.undoing(entry["file"]):  # its failure does not keep the others from being tried
                if Path(entry["file"]).exists():
                    Path(entry["file"]).write_text(entry["before"])
{%- endblock %}
