#!/usr/bin/env python3
"""Breaks the sources in one place at a time and looks whether the tests notice (docs/testing.md,
"Mutation"). The last line sums up; exits with 1 below the share of mutants that must be killed.

Usage: tools/mutation [--seed N] [--count N] [--jobs N] [--survivors] (--help for all)
"""
import argparse
import concurrent.futures
import dataclasses
import pathlib
import random
import sys
import time

import build
import equivalent
import instrument
import report
import sites
import suite

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDERS = ("src/kernels", "src/plan", "src/ops", "src/base")
REQUIRED_SHARE = 95.0  # per cent, equivalent mutants left out


def say(text):
    print(f"mutation: {text}", flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--count", type=int, default=300, help="mutants of the sample")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--folders", nargs="+", default=FOLDERS, help="whose files are broken")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "mutation")
    parser.add_argument("--survivors", action="store_true",
                        help="run the survivors of the last run again, against changed tests")
    return parser.parse_args()


@dataclasses.dataclass
class Workplace:
    """The folders below the output."""

    output: pathlib.Path

    @property
    def copy(self):
        return self.output / "source"

    @property
    def build(self):
        return self.output / "build"


def draw(place, arguments, describer):
    """{number: Mutant} of a random sample; some more than asked for, since some do not compile."""
    found = sites.find(ROOT, arguments.folders, place.build, place.copy)
    stale = equivalent.EquivalentMutations().stale(found, describer)
    for entry in stale:
        say(f"no such mutation, yet listed as equivalent: {entry}")
    if stale and set(arguments.folders) >= set(FOLDERS):
        raise SystemExit(1)
    say(f"{len(found)} mutants in {', '.join(arguments.folders)}")
    spare = arguments.count // 8 + 2
    random.seed(arguments.seed)
    sample = random.sample(found, min(arguments.count + spare, len(found)))
    return dict(enumerate(sample, 1))


def measure_all(place):
    """The selections, shortest first."""
    measured = []
    for selection in suite.SELECTIONS:
        measured.append(suite.measure(place.build, selection))
        say(f"{selection.name}: {measured[-1].seconds:.1f} s, "
            f"reaches {len(measured[-1].reached)} mutants")
    return sorted(measured, key=lambda one: one.seconds)


def at_run_time(measured, numbered):
    """Without the mutants of constexpr functions that are only called at compile time."""
    reached = set().union(*(one.reached for one in measured))
    constant = {number for number, mutant in numbered.items()
                if mutant.is_constexpr and number not in reached}
    if constant:
        say(f"{len(constant)} mutants are evaluated at compile time only, and left out")
    return {number: mutant for number, mutant in numbered.items() if number not in constant}


def judge(place, measured, number, mutant):
    """Runs what reaches a mutant until a test fails."""
    begin = time.monotonic()
    verdict, killer = "not reached", ""
    for one in measured:
        if number not in one.reached:
            continue
        verdict = "survived"
        outcome = suite.run(place.build, one.selection, one.limit, {"QKVFUSE_MUTANT": str(number)})
        if not outcome.passed:
            verdict, killer = "killed", f"{one.selection.name}: {outcome.why}"
            break
    return report.Result(number, mutant, verdict, killer, round(time.monotonic() - begin, 2))


def judge_all(place, measured, numbered, jobs, describer):
    """The results of all mutants, in the order of their numbers."""
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(judge, place, measured, number, mutant)
                   for number, mutant in numbered.items()]
        for done in concurrent.futures.as_completed(futures):
            result = done.result()
            say(f"{result.number} {result.verdict} ({result.seconds:.1f} s) {result.killer} "
                f"{describer.place(result.mutant)}: {describer.change(result.mutant)}")
    return [future.result() for future in futures]


def add_reasons(results, describer):
    """Reasons of the list for survivors; a mutant of the list that was killed is an error of it."""
    mutations = equivalent.EquivalentMutations()
    for result in results:
        result.reason = mutations.reason(result.mutant, describer)
        if result.reason and result.is_killed:
            say(f"listed as equivalent, yet killed by {result.killer}: "
                f"{describer.place(result.mutant)}: {describer.change(result.mutant)}")


def main():
    begin = time.monotonic()
    arguments = parse_arguments()
    place = Workplace(arguments.output.resolve())
    describer = report.Describer(ROOT)
    seed, earlier = report.read(place.output) if arguments.survivors else (arguments.seed, [])
    add_reasons(earlier, describer)
    instrument.write_copy(ROOT, place.copy, {result.number: result.mutant for result in earlier})
    build.configure(ROOT, place.copy, place.build)
    numbered = {result.number: result.mutant for result in earlier}
    numbered = build.build(ROOT, place.copy, place.build,
                           numbered or draw(place, arguments, describer), arguments.jobs, say)
    if not earlier:
        numbered = dict(sorted(numbered.items())[:arguments.count])
    say(f"{len(numbered)} mutants built after {time.monotonic() - begin:.0f} s")

    settled = [result for result in earlier if result.is_killed or result.reason]
    for result in settled:
        del numbered[result.number]
    measured = measure_all(place)
    numbered = at_run_time(measured, numbered)
    results = settled + judge_all(place, measured, numbered, arguments.jobs, describer)
    add_reasons(results, describer)
    seconds = time.monotonic() - begin
    report.write(place.output, results, seed, seconds, describer)
    print(report.markdown(results, describer))
    print(report.summary(results, seed, seconds))
    return 0 if report.Totals.of(results).share_of_real >= REQUIRED_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
