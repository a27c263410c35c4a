"""What a run found: as JSON to be read by the next one, and as Markdown to be read."""
import dataclasses
import json

import sites


@dataclasses.dataclass
class Result:
    """A mutant and what became of it."""

    number: int
    mutant: sites.Mutant
    verdict: str  # killed, survived or not reached
    killer: str = ""
    seconds: float = 0.0
    reason: str = ""  # why it is equivalent, from the list of those

    @property
    def is_killed(self):
        return self.verdict == "killed"


def squeezed(text):
    """On one line, as tables and keys have it."""
    return " ".join(text.split())


class Describer:
    """Puts mutants into words."""

    def __init__(self, root):
        self.root = root
        self.texts = {}

    def text(self, mutant):
        if mutant.file not in self.texts:
            self.texts[mutant.file] = (self.root / mutant.file).read_text("ascii")
        return self.texts[mutant.file]

    def line_number(self, mutant):
        return self.text(mutant).count("\n", 0, mutant.begin) + 1

    def marked_line(self, mutant):
        """The line on which the expression begins, with the expression between {{ and }}."""
        text = self.text(mutant)
        first = text.rfind("\n", 0, mutant.begin) + 1
        last = text.find("\n", mutant.begin)
        end = min(mutant.end, last)
        marked = f"{{{{{text[mutant.begin:end]}}}}}"
        return (text[first:mutant.begin] + marked + text[end:last]).strip()

    def original(self, mutant):
        return squeezed(self.text(mutant)[mutant.begin:mutant.end])

    def change(self, mutant):
        return f"{self.original(mutant)} -> {squeezed(mutant.replacement) or '(left out)'}"

    def place(self, mutant):
        return f"{mutant.file}:{self.line_number(mutant)}"


@dataclasses.dataclass
class Totals:
    """The figures of a run."""

    mutants: int
    killed: int
    equivalent: int  # survivors with a reason

    @classmethod
    def of(cls, results):
        survivors = [result for result in results if not result.is_killed]
        return cls(len(results), len(results) - len(survivors),
                   sum(1 for result in survivors if result.reason))

    @property
    def share(self):
        return 100.0 * self.killed / max(self.mutants, 1)

    @property
    def share_of_real(self):
        """Equivalent mutants left out of the count."""
        return 100.0 * self.killed / max(self.mutants - self.equivalent, 1)


def summary(results, seed, seconds):
    totals = Totals.of(results)
    return (f"{totals.mutants} mutants, {totals.killed} killed ({totals.share:.1f} %), "
            f"{totals.mutants - totals.killed} survived, {totals.equivalent} of them equivalent "
            f"({totals.share_of_real:.1f} % of the others killed), seed {seed}, {seconds:.0f} s")


def markdown(results, describer):
    """The table of the survivors."""
    rows = ["| id | place | mutation | verdict |", "|---|---|---|---|"]
    for result in results:
        if result.is_killed:
            continue
        change = describer.change(result.mutant).replace("|", "\\|")
        why = f"equivalent: {result.reason}" if result.reason else result.verdict
        rows.append(f"| {result.number} | {describer.place(result.mutant)} | `{change}` | {why} |")
    return "\n".join(rows) + "\n"


def write(folder, results, seed, seconds, describer):
    """results.json and survivors.md in `folder`."""
    records = [{**dataclasses.asdict(result), "place": describer.place(result.mutant),
                "change": describer.change(result.mutant)} for result in results]
    document = {"seed": seed, "seconds": round(seconds), "results": records}
    (folder / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    text = f"{summary(results, seed, seconds)}\n\n{markdown(results, describer)}"
    (folder / "survivors.md").write_text(text)


def read(folder):
    """The seed and the results that were written last."""
    document = json.loads((folder / "results.json").read_text())
    fields = [field.name for field in dataclasses.fields(Result)]
    results = []
    for record in document["results"]:
        values = {name: record[name] for name in fields}
        results.append(Result(**{**values, "mutant": sites.Mutant(**record["mutant"])}))
    return document["seed"], results
