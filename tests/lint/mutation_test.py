"""Tests of tools/mutation on a toy program: mutants are found where they should be, one build
serves them all, and those that change a result are told from one that does not."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parent.parent.parent / "tools" / "mutation"
sys.path.insert(0, str(TOOL))
try:
    import build
    import instrument
    import report
    import sites
except ImportError:
    sites = None  # without python3-clang-14

TOY = """\
constexpr int kTwo = 2;  // known at compile time, like the bound of an array
template <int kAdd> int Plus(int a) { return a + kAdd; }
int Larger(int a, int b) { return a < b ? b : a; }
int main() {
  int seen[kTwo + 1] = {};
  seen[1] = Plus<1>(0);
  if constexpr (kTwo == 3) return 1;
  return Larger(1, 2) == 2 && Larger(2, 1) == 2 && seen[1] == 1 ? 0 : 1;
}
"""


@unittest.skipIf(sites is None, "python3-clang-14 is not installed")
class Mutation(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name).resolve()
        (self.root / "toy.cc").write_text(TOY)
        self.mutants = self.find()
        self.describer = report.Describer(self.root)

    def find(self):
        finder = sites.Finder(self.root, lambda name: name == "toy.cc")
        arguments = ["-x", "c++", "-std=c++20"]
        finder.find(sites.cindex.Index.create().parse(str(self.root / "toy.cc"), arguments).cursor)
        return sorted(finder.mutants)

    def changes(self):
        return {self.describer.change(mutant): number
                for number, mutant in enumerate(self.mutants, 1)}

    def compile(self):
        numbered = list(enumerate(self.mutants, 1))
        (self.root / "mutated.cc").write_text(instrument.instrumented(TOY, numbered))
        subprocess.run(["g++", "-std=c++20", "-w", "-Werror=vla", "-include", TOOL / "mutant.h",
                        self.root / "mutated.cc", "-o", self.root / "mutated"], check=True)

    def run_mutant(self, **environment):
        return subprocess.run([self.root / "mutated"], env={**os.environ, **environment}).returncode

    def test_finds_what_can_be_switched(self):
        changes = self.changes()
        for change in ("a < b -> a <= b", "a < b -> a >= b", "a + kAdd -> a - kAdd",
                       "seen[1] = Plus<1>(0) -> (left out)"):
            self.assertIn(change, changes)
        for mutant in self.mutants:
            self.assertNotIn("kTwo", self.describer.original(mutant))

    def test_one_build_tells_mutants_apart(self):
        self.compile()
        changes = self.changes()
        self.assertEqual(self.run_mutant(), 0)
        killed = [change for change, number in changes.items()
                  if self.run_mutant(QKVFUSE_MUTANT=str(number)) != 0]
        self.assertIn("a < b -> a >= b", killed)
        self.assertIn("a + kAdd -> a - kAdd", killed)
        self.assertIn("seen[1] = Plus<1>(0) -> (left out)", killed)
        self.assertNotIn("a < b -> a <= b", killed)  # equal numbers: either is the larger

    def test_records_what_is_reached(self):
        self.compile()
        reached = self.root / "reached"
        self.assertEqual(self.run_mutant(QKVFUSE_REACHED=str(reached)), 0)
        numbers = {int(line) for line in reached.read_text().split()}
        self.assertIn(self.changes()["a < b -> a <= b"], numbers)
        self.assertTrue(numbers <= set(range(1, len(self.mutants) + 1)))

    def test_blames_the_mutants_of_an_error(self):
        numbered = dict(enumerate(self.mutants, 1))
        path = self.root / "copy" / "toy.cc"
        for messages in (f"{path}:3:30: error: no", f"{path}:3:1:   required from here\n"
                                                    "/usr/include/x.h:1:1: error: no"):
            blamed = build.culprits(messages, self.root, self.root / "copy", numbered)
            self.assertIn(self.changes()["a < b -> a <= b"], blamed)
            self.assertNotIn(self.changes()["a + kAdd -> a - kAdd"], blamed)

    def test_sums_up(self):
        mutant = self.mutants[0]
        results = [report.Result(1, mutant, "killed"), report.Result(2, mutant, "survived"),
                   report.Result(3, mutant, "survived", reason="none sees it")]
        totals = report.Totals.of(results)
        self.assertEqual((totals.mutants, totals.killed, totals.equivalent), (3, 1, 1))
        self.assertEqual(totals.share_of_real, 50.0)


if __name__ == "__main__":
    unittest.main()
