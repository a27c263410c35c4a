#!/usr/bin/env python3
"""Checks text rules of the sources: an opening comment, ASCII, line and file length, no stray white
space, no paths of one machine, no unfinished marks. Prints one line for each violation.

Usage: tools/lint/check_text.py [FILE...]   (default: every file that git tracks or would add)
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
COMMENT_STARTS = ("//", "/*", "#", '"""', "/**")
CODE_SUFFIXES = {".h", ".hpp", ".c", ".cc", ".inc", ".py", ".sh", ".cmake", ".in"}
CORPUS = ROOT / "tests/fuzz/corpus"  # bytes, not text
MAX_COLUMNS = 100
MAX_LINES = 400

FORBIDDEN = [
    (re.compile(r"(?<![\w.$}])/(home|root|work|Users)/"), "path of one machine"),
    (re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b"), "unfinished mark"),
    (re.compile(r"^\s*(//|#)\s*[-=*]{4,}"), "banner line"),
    (re.compile(r"[ \t]+$"), "white space at the end of the line"),
    (re.compile(r"\t"), "tab"),
]


def is_code(path):
    return path.suffix in CODE_SUFFIXES or path.name == "CMakeLists.txt"


def opening_comment_missing(lines):
    """True unless the first line, after an optional interpreter line, opens a comment."""
    body = lines[1:] if lines and lines[0].startswith("#!") else lines
    return not body or not body[0].startswith(COMMENT_STARTS)


def check_code(lines):
    """(line number, reason) of rules that hold for code but not for documents and data."""
    if opening_comment_missing(lines):
        yield 1, "the file does not open with a comment that says what it is for"
    if len(lines) > MAX_LINES:
        yield MAX_LINES + 1, f"{len(lines)} lines; at most {MAX_LINES}"
    for number, line in enumerate(lines, 1):
        if not line.isascii():
            yield number, "not ASCII"
        if len(line) > MAX_COLUMNS:
            yield number, f"{len(line)} columns; at most {MAX_COLUMNS}"


def check(path):
    """(line number, reason) for each violation in one file."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return
    lines = text.splitlines()
    if is_code(path):
        yield from check_code(lines)
    if text and not text.endswith("\n"):
        yield len(lines), "no newline at the end of the file"
    for number, line in enumerate(lines, 1):
        for pattern, reason in FORBIDDEN:
            if reason == "tab" and not is_code(path):
                continue
            if path.suffix == ".svg" and "white space" in reason:  # as drawing libraries write it
                continue
            if pattern.search(line):
                yield number, reason


def project_files():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    files = [ROOT / name for name in names.splitlines()]
    return [file for file in files if CORPUS not in file.parents]


def main(arguments):
    files = [pathlib.Path(name).resolve() for name in arguments] or project_files()
    violations = 0
    for path in files:
        if not path.is_file():
            continue
        for number, reason in check(path):
            print(f"{path.relative_to(ROOT)}:{number}: {reason}")
            violations += 1
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
