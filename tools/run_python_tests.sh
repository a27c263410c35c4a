#!/usr/bin/env bash
# Installs the Python package, built from this checkout, into a virtual environment of its own
# (build/python/venv), checks its form and types and runs its tests. JUnit results:
# build/python/tests.xml.
# Usage: tools/run_python_tests.sh [pytest arguments...]      PYTHON: the interpreter (python3)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
venv=build/python/venv
results=build/python/tests.xml
rm -f "$results" # a build that fails must not leave the counts of an earlier run

[[ -x "$venv/bin/python" ]] || "${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  -r tests/python/requirements.txt
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check .

"$venv/bin/python" -m ruff check python tests/python examples/python
"$venv/bin/python" -m ruff format --check python tests/python examples/python
"$venv/bin/python" -m mypy
"$venv/bin/python" -m pytest --junitxml="$results" "$@"
