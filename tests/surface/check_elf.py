#!/usr/bin/env python3
"""Reads the headers of a shared library: its name and version, and what hardens it.

Usage: check_elf.py --readelf READELF --library FILE --name NAME --version X.Y.Z [--hardened]
"""
import argparse
import pathlib
import re
import subprocess
import sys


def read(readelf, option, library):
    command = [readelf, option, "--wide", library]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def name_faults(dynamic, library, name, version):
    """The soname carries the major version, the file all of it, and links lead to the file."""
    soname = f"lib{name}.so.{version.split('.')[0]}"
    found = re.findall(r"\(SONAME\).*\[(.*)\]", dynamic)
    if found != [soname]:
        yield f"soname {found}; expected {soname}"
    file = pathlib.Path(library).resolve()
    if file.name != f"lib{name}.so.{version}":
        yield f"the file is {file.name}; expected lib{name}.so.{version}"
    for link in (f"lib{name}.so", soname):
        if (file.parent / link).resolve() != file:
            yield f"{link} does not lead to {file.name}"


def flags_of(segments, kind):
    """Flags of the segments of a kind: offset, two addresses, two sizes, flags, alignment."""
    row = rf"^\s*{kind}\s+(?:0x[0-9a-f]+\s+){{4}}0x[0-9a-f]+ ([RWE ]{{3}}) 0x"
    return re.findall(row, segments, re.MULTILINE)


def load_faults(dynamic, segments):
    """What every library keeps to, hardened or not."""
    if re.search(r"\((RPATH|TEXTREL)\)", dynamic):
        yield "has an RPATH or relocations in its code"
    stack = flags_of(segments, "GNU_STACK")
    if len(stack) != 1 or "E" in stack[0]:
        yield f"executable stack, or none stated: {stack}"
    loaded = flags_of(segments, "LOAD")
    if not loaded or any("W" in flags and "E" in flags for flags in loaded):
        yield f"segments both writable and executable, or none: {loaded}"


def hardening_faults(dynamic, segments, symbols):
    if "GNU_RELRO" not in segments:
        yield "no GNU_RELRO segment: relocations stay writable"
    if not re.search(r"\(FLAGS(_1)?\).*\b(BIND_)?NOW\b|\(BIND_NOW\)", dynamic):
        yield "not BIND_NOW: the table of functions stays writable"
    if "__stack_chk_fail" not in symbols:
        yield "no stack protector"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--readelf", required=True)
    parser.add_argument("--library", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--hardened", action="store_true")
    options = parser.parse_args()
    dynamic = read(options.readelf, "--dynamic", options.library)
    segments = read(options.readelf, "--segments", options.library)
    faults = list(name_faults(dynamic, options.library, options.name, options.version))
    faults += load_faults(dynamic, segments)
    if options.hardened:
        symbols = read(options.readelf, "--dyn-syms", options.library)
        faults += hardening_faults(dynamic, segments, symbols)
    for fault in faults:
        print(f"{options.library}: {fault}")
    print(f"{len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
