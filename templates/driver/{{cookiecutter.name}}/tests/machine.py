{% include cookiecutter.kind ~ "/machine.py" -%}
