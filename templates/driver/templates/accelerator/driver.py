{% extends "card/driver.py" %}
{% block what %}accelerators on PCI cards, which containers find by one variable. It changes nothing on the node.{% endblock %}
{% block constants -%}
VISIBLE = "ACCEL_VISIBLE_DEVICES"  # what your library reads: the numbers of the nodes of all cards of a container
{% endblock %}
{% block config %}    """What a claim may set: what the library in the container logs."""

    log_level: Literal["error", "debug"] = "error"
{% endblock %}
{% block info %}        """Return the name, and the classes of configuration; with `nri=True` several claims fill one variable."""
{% endblock %}
{% block prepare %}        """Say what the containers of each device get: its nodes, and their numbers in the variable of the library."""
        for device in claim.devices:
            paths = sorted((device.hardware.path / SUBSYSTEM).glob("*"))
            numbers = [path.name.removeprefix(SUBSYSTEM) for path in paths]
            nodes = [DeviceNode(device_file(path)) for path in paths]
            env = {"ACCEL_LOG_LEVEL": device.config.log_level}
            yield device.prepared(ContainerEdits(env=env, env_lists={VISIBLE: numbers}, device_nodes=nodes))

    # def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
    #     """Undo what dra_prepare has changed on the node, from claim.journal. Without changes leave it out."""
{%- endblock %}
