"""The DRA driver {{ cookiecutter.driver_name }}."""

from {{ cookiecutter.__package }}.driver import {{ cookiecutter.__class }}Config, {{ cookiecutter.__class }}Driver

__all__ = ["{{ cookiecutter.__class }}Config", "{{ cookiecutter.__class }}Driver"]
