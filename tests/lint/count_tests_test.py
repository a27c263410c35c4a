"""count_tests adds up JUnit files and refuses failures, missing files and empty runs."""
import contextlib
import io
import pathlib
import tempfile
import unittest

import count_tests

PASSED = '<testcase name="a" status="run"/>'
FAILED = '<testcase name="b" status="fail"><failure message=""/></testcase>'
NOT_RUN = '<testcase name="c" status="notrun"><skipped message="%s"/></testcase>'
SKIPPED = NOT_RUN % "SKIP_REGULAR_EXPRESSION_MATCHED"
MISSING = NOT_RUN % "Unable to find executable"
OF_PYTEST = '<testcase name="e" time="1"/>'
PYTEST_SKIPPED = '<testcase name="f"><skipped type="pytest.skip" message="no torch"/></testcase>'
PYTEST_XFAIL = '<testcase name="g"><skipped type="pytest.xfail" message=""/></testcase>'
PYTEST_FAILED = '<testcase name="h"><failure message="assert"/></testcase>'
PYTEST_ERROR = '<testcase name="i"><error message="fixture"/></testcase>'
UNKNOWN = '<testcase name="d" status="notrun"/>'


def run(*suites):
    """Exit code and last line for JUnit files with these test cases; None is a missing file."""
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, cases in enumerate(suites):
            paths.append(pathlib.Path(folder) / f"{number}.xml")
            if cases is not None:
                paths[-1].write_text(f"<testsuite>{cases}</testsuite>", encoding="utf-8")
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
            code = count_tests.main(paths)
        return code, output.getvalue().splitlines()[-1]


class CountTestsTest(unittest.TestCase):
    def test_sums(self):
        self.assertEqual(run(PASSED + PASSED, PASSED), (0, "3 passed, 0 failed"))
        self.assertEqual(run(PASSED + SKIPPED), (0, "1 passed, 0 failed, 1 skipped"))

    def test_pytest(self):
        skips_one = run(OF_PYTEST + PYTEST_SKIPPED, PASSED)
        self.assertEqual(skips_one, (0, "2 passed, 0 failed, 1 skipped"))
        for bad in (PYTEST_FAILED, PYTEST_ERROR, PYTEST_XFAIL):
            self.assertEqual(run(OF_PYTEST + bad), (1, "1 passed, 1 failed"))

    def test_refusals(self):
        self.assertEqual(run(PASSED + FAILED, PASSED), (1, "2 passed, 1 failed"))
        self.assertEqual(run(PASSED + MISSING), (1, "1 passed, 1 failed"))
        self.assertEqual(run(PASSED + UNKNOWN), (1, "1 passed, 1 failed"))
        self.assertEqual(run(PASSED, None), (1, "1 passed, 0 failed"))
        self.assertEqual(run(""), (1, "0 passed, 0 failed"))
        self.assertEqual(run(SKIPPED), (1, "0 passed, 0 failed, 1 skipped"))


if __name__ == "__main__":
    unittest.main()
