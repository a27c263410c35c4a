#!/usr/bin/env python3
"""Does what README.md tells its reader to do with an installed library: writes the programs that it
shows, then runs its build commands as they stand.

A code block whose first line is a comment "<file name>: ..." is a file; a "sh" block whose first
line is a comment "With ...:" is run in the folder of these files.

Usage: PREFIX=... readme.py README
"""
import pathlib
import re
import subprocess
import sys
import tempfile

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"(?://|/\*|#) ([\w.]+\.(?:cc|c|txt)): ")


def split_blocks(text):
    """Returns {file name: content} and the list of shell scripts."""
    files, scripts = {}, []
    for language, content in BLOCK.findall(text):
        name = FILE_NAME.match(content)
        if name:
            files[name[1]] = content
        elif language == "sh" and content.startswith("# With "):
            scripts.append(content)
    return files, scripts


def main(readme):
    files, scripts = split_blocks(pathlib.Path(readme).read_text(encoding="utf-8"))
    suffixes = {pathlib.PurePath(name).suffix for name in files}
    if suffixes != {".cc", ".c", ".txt"} or len(scripts) != 2:
        print(f"README has the files {sorted(files)} and {len(scripts)} scripts; expected a C++ "
              "and a C program, CMakeLists.txt, and one script each for CMake and pkg-config")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (pathlib.Path(folder) / name).write_text(content, encoding="utf-8")
        for script in scripts:
            print(script, flush=True)
            subprocess.run(["bash", "-euxo", "pipefail", "-c", script], cwd=folder, check=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
