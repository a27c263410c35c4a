"""Writes a copy of the sources in which every chosen mutant is present and switched at run time
(mutant.h), so that one build serves them all.
"""
import dataclasses
import itertools
import subprocess

VOID = "(void)0"


def tracked_files(root):
    """What git tracks or would add, relative to the root."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    output = subprocess.run(command, cwd=root, check=True, capture_output=True).stdout
    return [name for name in output.decode().split("\0") if name and (root / name).is_file()]


def write_if_changed(path, data):
    """Leaves a file that is already so alone, so that nothing is rebuilt for it."""
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def switch(original, mutants):
    """An expression that is `original`, or what takes its place where one of `mutants`, pairs of a
    number and a Mutant, is active."""
    cast = ""
    if any(not mutant.replacement for _, mutant in mutants):
        cast = "(void)"
    elif any(mutant.rule in ("condition", "negation") for _, mutant in mutants):
        cast = "(bool)"  # of an optional or a pointer
    text = "("
    for number, mutant in mutants:
        macro = "QKVFUSE_MUTANT_CONSTEXPR" if mutant.is_constexpr else "QKVFUSE_MUTANT"
        other = f"{cast}({mutant.replacement})" if mutant.replacement else VOID
        text += f"{macro}({number}) ? {other} : "
    return f"{text}{cast}({original}))"


def instrumented(text, numbered):
    """The text of a file with its mutants, pairs of a number and a Mutant. Places lie in each other
    or apart; the alternatives of one do not hold the mutants inside of it, since only one mutant is
    active at a time, so the text grows linearly. Line numbers stay as they are."""
    def place(item):
        return item[1].begin, -item[1].end

    places = [(key, list(group)) for key, group in
              itertools.groupby(sorted(numbered, key=place), key=place)]

    def render(begin, end):
        """text[begin:end] with the places that lie in it, which are the next ones."""
        parts = []
        while places and places[0][0][0] < end:
            (first, negative_last), mutants = places.pop(0)
            last = -negative_last
            if first < begin or last > end:
                raise ValueError(f"bytes {first} to {last} cross bytes {begin} to {end}")
            parts += [text[begin:first], switch(render(first, last), mutants)]
            begin = last
        return "".join(parts) + text[begin:end]

    # A replacement of several lines would move the lines behind it.
    for _, mutants in places:
        mutants[:] = [(number, on_one_line(mutant)) for number, mutant in mutants]
    return render(0, len(text))


def on_one_line(mutant):
    """The replacement without line breaks, and without the comments that they would end."""
    lines = [line.split("//")[0].strip() for line in mutant.replacement.split("\n")]
    return dataclasses.replace(mutant, replacement=" ".join(lines))


def write_mutants(root, copy, files, numbered):
    """Brings some files of the copy up to date with the mutants, {number: Mutant}."""
    for name in files:
        here = [item for item in numbered.items() if item[1].file == name]
        text = instrumented((root / name).read_text("ascii"), here)
        write_if_changed(copy / name, text.encode("ascii"))


def write_copy(root, copy, numbered):
    """Brings `copy` up to date with the root, with the mutants."""
    names = set(tracked_files(root))
    files = {mutant.file for mutant in numbered.values()}
    for name in names - files:
        write_if_changed(copy / name, (root / name).read_bytes())
    write_mutants(root, copy, files, numbered)
    for path in list(copy.rglob("*")):
        if path.is_file() and path.relative_to(copy).as_posix() not in names:
            path.unlink()
