"""Text to evaluate and calibrate on: the King James Bible of the Debian package bible-kjv.

The text is in the public domain; `apt-get install bible-kjv` brings it and the program that prints
it.
"""

from __future__ import annotations

import re
import shutil
import subprocess

EVALUATION = "Acts1:1-28:31"  # of the New Testament
CALIBRATION = "Genesis1:1-50:26"  # of the Old Testament


def passage(reference: str) -> str:
    """The text of a passage, a paragraph for each chapter.

    Raises:
        FileNotFoundError: the program `bible` is not installed.
    """
    program = shutil.which("bible")
    if program is None:
        raise FileNotFoundError("bible: is not installed, must be: apt-get install bible-kjv")
    lines = subprocess.run([program, "-f", reference], capture_output=True, text=True, check=True)
    chapters: dict[str, list[str]] = {}
    for line in lines.stdout.splitlines():
        verse = re.fullmatch(r"(\w+?\d+):\d+ (.*)", line.strip())  # "Acts1:2 Until the day ..."
        if verse is not None:
            chapters.setdefault(verse[1], []).append(verse[2])
    return "\n\n".join(" ".join(verses) for verses in chapters.values())
