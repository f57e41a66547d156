{% include cookiecutter.kind ~ "/driver.py" -%}
