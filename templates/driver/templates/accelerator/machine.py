{% extends "card/machine.py" %}
