#!/usr/bin/env python3
"""Adds up JUnit files that ctest and pytest wrote and prints "N passed, N failed" (", N skipped")
as the last line. Exits with 1 when a test failed, a file is missing or no test passed.

Usage: tools/count_tests.py JUNIT_FILE...
"""
import sys
import xml.etree.ElementTree as ElementTree


def outcome(test_case):
    """passed, skipped or failed; whatever is not known to be good is a failure.

    ctest writes <skipped> also for tests that could not run (no executable, a failed fixture); only
    the messages of a test that skipped itself begin with SKIP_. pytest has no status; a case of its
    without children has passed.
    """
    skipped = test_case.find("skipped")
    if skipped is not None:
        skipped_itself = (
            skipped.get("message", "").startswith("SKIP_") or skipped.get("type") == "pytest.skip"
        )
        return "skipped" if skipped_itself else "failed"
    if test_case.get("status") is None:
        is_bad = any(test_case.find(child) is not None for child in ("failure", "error"))
        return "failed" if is_bad else "passed"
    if test_case.get("status") == "disabled":
        return "skipped"
    return "passed" if test_case.get("status") == "run" else "failed"


def main(paths):
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    complete = bool(paths)
    for path in paths:
        try:
            test_cases = list(ElementTree.parse(path).iter("testcase"))
        except (OSError, ElementTree.ParseError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            complete = False
            continue
        for test_case in test_cases:
            counts[outcome(test_case)] += 1
    sys.stderr.flush()
    summary = f"{counts['passed']} passed, {counts['failed']} failed"
    if counts["skipped"]:
        summary += f", {counts['skipped']} skipped"
    print(summary, flush=True)
    return 0 if complete and counts["passed"] and not counts["failed"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
