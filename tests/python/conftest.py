"""Hypothesis draws the same examples in continuous integration every time, others elsewhere."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
