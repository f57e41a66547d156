{% extends "card/machine.py" %}
{% block more %}        node.file(f"{ROOT}/{address}/power/control", "auto\n")
{% endblock %}
{% block changed %}
def changed(node: FakeNode) -> str:
    """Return what a claim for the first card changes."""
    return node.path(f"{ROOT}/{ADDRESSES[0]}/power/control").read_text().strip()

{% endblock %}
