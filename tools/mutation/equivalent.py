"""The list of mutations that change nothing that a test could see, each with its reason."""
import pathlib
import tomllib

LIST = pathlib.Path(__file__).resolve().parent / "equivalent.toml"
KEYS = ("file", "line", "mutation")
ANY = "*"  # as mutation: whatever takes the expression's place


def key_of(mutant, describer):
    """A mutation by its file, its line of source with the expression marked, and what takes its
    place: not by line numbers, which change with every edit."""
    return mutant.file, describer.marked_line(mutant), " ".join(mutant.replacement.split())


class EquivalentMutations:
    """The list, to be asked for reasons."""

    def __init__(self, path=LIST):
        entries = tomllib.loads(path.read_text("ascii")).get("equivalent", [])
        self.reasons = {tuple(entry[key] for key in KEYS): entry["reason"] for entry in entries}

    def reason(self, mutant, describer):
        """Why a mutant is equivalent, or an empty text."""
        file, line, mutation = key_of(mutant, describer)
        return self.reasons.get((file, line, mutation)) or self.reasons.get((file, line, ANY), "")

    def stale(self, mutants, describer):
        """The entries that none of the sources' mutants matches any more."""
        keys = {key_of(mutant, describer) for mutant in mutants}
        keys |= {(file, line, ANY) for file, line, _ in keys}
        return sorted(set(self.reasons) - keys)
