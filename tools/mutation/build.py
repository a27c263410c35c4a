"""Builds the copy of the sources with the mutants in it; those that do not compile are dropped."""
import os
import re
import subprocess

import instrument
import suite

# A location in a message of g++, and whether it is that of an error or of a note to one.
MESSAGE = re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+)(?::\d+)?:\s+(?P<kind>.*)$")


class BuildError(RuntimeError):
    """The sources do not build, for a reason that is no mutant's."""


def configure(root, copy, build):
    """Without what the tests of mutants do not need. An index outside of an array ends the program,
    as it does under `make asan`."""
    flags = (f"-O2 -w -Werror=vla -fsanitize=bounds -fsanitize-undefined-trap-on-error "
             f"-include {copy}/tools/mutation/mutant.h")
    command = ["cmake", "-S", copy, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None",
               "-DCMAKE_C_COMPILER=gcc", "-DCMAKE_CXX_COMPILER=g++", f"-DCMAKE_CXX_FLAGS={flags}",
               "-DQKVFUSE_BUILD_EXAMPLES=OFF", "-DQKVFUSE_BUILD_BENCHMARKS=OFF",
               "-DQKVFUSE_HARDEN=OFF",
               f"-DQKVFUSE_SHARED_CASES={root.parent}/shared/cases"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def ninja(build, jobs, targets):
    """The messages of a build that failed, or None."""
    command = ["ninja", "-C", build, f"-j{jobs}", "-k0", *targets]
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stdout


def lines_of(text, mutant):
    """The lines of a file that a mutant's expression is on."""
    first = text.count("\n", 0, mutant.begin) + 1
    return range(first, first + text.count("\n", mutant.begin, mutant.end) + 1)


def mutants_at(root, copy, numbered, file, line):
    """The numbers of the mutants on a line of the copy."""
    name = os.path.relpath(file, copy)
    texts = {}
    found = set()
    for number, mutant in numbered.items():
        if mutant.file == name:
            text = texts.setdefault(name, (root / name).read_text("ascii"))
            if line in lines_of(text, mutant):
                found.add(number)
    return found


def culprits(messages, root, copy, numbered):
    """The numbers of the mutants that a failed build's errors are about: those on the line of an
    error, else those on the lines from which it was instantiated."""
    found = set()
    context = set()
    for line in messages.splitlines():
        match = MESSAGE.match(line)
        if match is None:
            if line.startswith("FAILED:"):
                context = set()
            continue
        here = mutants_at(root, copy, numbered, match["file"], int(match["line"]))
        if not match["kind"].startswith(("error", "fatal error")):
            context |= here
            continue
        found |= here or context
        context = set()
    return found


def build(root, copy, folder, numbered, jobs, say):
    """Builds the library and the test programs with all of `numbered`, {number: Mutant}, that
    compile, and returns those."""
    numbered = dict(numbered)
    files = {mutant.file for mutant in numbered.values()}
    for targets in (suite.LIBRARIES, suite.programs()):
        while True:
            instrument.write_mutants(root, copy, files, numbered)
            messages = ninja(folder, jobs, targets)
            if messages is None:
                break
            bad = culprits(messages, root, copy, numbered)
            if not bad:
                raise BuildError(messages)
            say(f"{len(bad)} mutants do not compile")
            for number in bad:
                del numbered[number]
    return numbered
