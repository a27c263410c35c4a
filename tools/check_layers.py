#!/usr/bin/env python3
"""Checks the layering rules of docs/architecture.md: which folder may include which, and which
folders alone may know an external library. Prints one line for each violation.

Usage: tools/check_layers.py [--root FOLDER]
"""
import argparse
import pathlib
import re
import sys

# Folder -> folders that its files may include besides their own. The most specific folder counts;
# folders that are not listed (tests) may include anything. A listed folder that names none
# stands on its own.
LAYERS = {
    "include/qkvfuse": [],
    "include/qkvfuse-acl": [],
    "src/base": ["include/qkvfuse"],
    "src/kernels": ["src/base", "include/qkvfuse"],
    "src/plan": ["src/kernels", "src/base", "include/qkvfuse"],
    "src/ops": ["src/plan", "src/kernels", "src/base", "include/qkvfuse"],
    "src/models": ["src/base", "include/qkvfuse"],
    "src/capi": ["src/ops", "src/plan", "src/base", "include/qkvfuse", "include/qkvfuse-acl"],
    "reference": ["include/qkvfuse"],
    "cases": ["reference", "include/qkvfuse"],
    "bench": ["src/plan", "src/kernels", "src/base", "cases", "reference", "include/qkvfuse"],
    "tools": ["bench", "cases", "reference", "include/qkvfuse"],
    "python": ["include/qkvfuse"],
    "examples/cpp": ["include/qkvfuse"],
    "examples/c": ["include/qkvfuse-acl"],
}

# First folder of an external include -> the only folders that may use it.
EXTERNAL = {
    "hwy": ["src/kernels", "bench", "tests"],
    "nlohmann": ["src/models", "cases", "tools/cli", "tests"],
    "nanobind": ["python"],
    "gtest": ["tests"],
    "gmock": ["tests"],
    "benchmark": ["bench"],
    "CLI": ["tools/cli", "tests/soak.cc"],
    "CLI11": ["tools/cli", "tests/soak.cc"],
}

# Quoted includes are looked up in the including file's folder, then in these.
INCLUDE_ROOTS = ["src", "include", "include/qkvfuse-acl", "", "tests", "tools/cli"]

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)
SUFFIXES = {".h", ".hpp", ".c", ".cc", ".cpp", ".inc"}
FOLDERS = ["include", "src", "reference", "cases", "tools", "examples", "tests", "bench", "python"]


def is_below(path, folder):
    """True when `path` is `folder` or lies in it; both are relative to the root."""
    return path == folder or path.startswith(folder + "/")


def layer_of(path):
    """The most specific folder of LAYERS that holds `path`, or None."""
    holders = [folder for folder in LAYERS if is_below(path, folder)]
    return max(holders, key=len, default=None)


def resolve(root, path, name):
    """The file of the project that `path` includes as `name`, or None when it is not ours."""
    folders = [str(pathlib.PurePosixPath(path).parent)] + INCLUDE_ROOTS
    for folder in folders:
        candidate = (root / folder / name).resolve()
        if candidate.is_file() and candidate.is_relative_to(root):
            return candidate.relative_to(root).as_posix()
    return None


def violation(root, path, quote, name):
    """Why `path` may not include `name`, or None when it may."""
    target = resolve(root, path, name)
    if target is None:
        users = EXTERNAL.get(name.split("/")[0])
        if users and not any(is_below(path, user) for user in users):
            return f"only {' and '.join(users)} may include <{name}>"
        if quote == '"' and users is None:
            return f'"{name}" is no file of the project'
        return None
    layer = layer_of(path)
    if layer is None:
        return None
    allowed = [layer] + LAYERS[layer]
    if layer_of(target) in allowed:
        return None
    return f"{layer} may include {', '.join(allowed)}, not {target}"


def check(root):
    """One line for each violation below `root`."""
    lines = []
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in SUFFIXES:
                continue
            path = file.relative_to(root).as_posix()
            text = file.read_text(encoding="utf-8")
            for match in INCLUDE.finditer(text):
                reason = violation(root, path, match[1], match[2])
                if reason:
                    number = text.count("\n", 0, match.start(2)) + 1
                    lines.append(f"{path}:{number}: {reason}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    default_root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--root", type=pathlib.Path, default=default_root)
    violations = check(parser.parse_args().root.resolve())
    for line in violations:
        print(line)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
