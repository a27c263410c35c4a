#!/usr/bin/env python3
"""Compares the symbols that a shared library exports with the list that is checked in: a missing
one breaks users, a further one is a promise that nobody meant to make.

Usage: check_exports.py --nm NM --library FILE --list FILE [--record]   (--record writes the list)
"""
import argparse
import pathlib
import subprocess
import sys


def exported(nm, library):
    """The mangled names that the library defines for others, sorted."""
    command = [nm, "--dynamic", "--defined-only", "--format=just-symbols", library]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return sorted(set(output.split()))


def differences(expected, found):
    """One line for each name that is in one list only."""
    yield from (f"no longer exported: {name}" for name in sorted(set(expected) - set(found)))
    yield from (f"exported, but not listed: {name}" for name in sorted(set(found) - set(expected)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--nm", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--list", required=True, type=pathlib.Path)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    found = exported(options.nm, options.library)
    if options.record:
        options.list.write_text("\n".join(found) + "\n", encoding="utf-8")
        return 0
    lines = list(differences(options.list.read_text(encoding="utf-8").split(), found))
    for line in lines:
        print(line)
    print(f"{len(found)} symbols, {len(lines)} differences from {options.list.name}")
    return 1 if lines or not found else 0


if __name__ == "__main__":
    sys.exit(main())
