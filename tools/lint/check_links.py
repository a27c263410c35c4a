#!/usr/bin/env python3
"""Checks that the files which Markdown pages link to exist. Prints one line for each violation.

Usage: tools/lint/check_links.py
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)")
CODE_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def without_code(text):
    """The text with its code blocks emptied; line numbers stay."""
    return CODE_BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)


def main():
    violations = 0
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "cases").rglob("*.md")]
    for page in sorted(pages):
        for number, line in enumerate(without_code(page.read_text("utf-8")).splitlines(), 1):
            for target in LINK.findall(line):
                if "://" not in target and not (page.parent / target).exists():
                    print(f"{page.relative_to(ROOT)}:{number}: no file {target}")
                    violations += 1
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
