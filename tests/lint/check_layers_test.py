"""check_layers finds each kind of forbidden include in a small tree, and only those."""
import pathlib
import tempfile
import unittest

import check_layers

# File -> its text. Headers exist so that includes resolve to them.
HEADERS = {
    "include/qkvfuse/plan.hpp": "",
    "include/qkvfuse-acl/acl/acl.h": "",
    "src/base/half.h": "",
    "src/kernels/kernels.h": "",
    "src/plan/plan_impl.h": "",
    "src/ops/checks.h": "",
    "reference/exact.h": "",
}


def violations(path, include):
    """Violations of a tree in which `path` has one include line."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder).resolve()
        for name, text in {**HEADERS, path: f"#include {include}\n"}.items():
            file = root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return check_layers.check(root)


class CheckLayersTest(unittest.TestCase):
    def test_allowed(self):
        for path, include in [
            ("src/ops/operator.cc", '"plan/plan_impl.h"'),
            ("src/plan/plan.cc", '"kernels/kernels.h"'),
            ("src/kernels/simd-inl.h", '"hwy/highway.h"'),
            ("src/capi/runtime.cc", '"acl/acl.h"'),
            ("src/base/log.cc", "<vector>"),
            ("reference/exact.cc", '"exact.h"'),
            ("tests/plan_test.cc", '"plan/plan_impl.h"'),
        ]:
            with self.subTest(path=path, include=include):
                self.assertEqual(violations(path, include), [])

    def test_refused(self):
        for path, include in [
            ("src/base/half.cc", '"kernels/kernels.h"'),
            ("src/kernels/general.cc", '"plan/plan_impl.h"'),
            ("src/kernels/general.cc", '"../ops/checks.h"'),
            ("src/plan/plan.cc", '"ops/checks.h"'),
            ("src/plan/plan.cc", '"hwy/highway.h"'),
            ("src/plan/plan.cc", "<hwy/highway.h>"),
            ("src/ops/operator.cc", '"acl/acl.h"'),
            ("include/qkvfuse/tensor.hpp", '"acl/acl.h"'),
            ("include/qkvfuse/tensor.hpp", '"base/half.h"'),
            ("reference/exact.cc", '"base/half.h"'),
            ("tools/cli/main.cc", '"plan/plan_impl.h"'),
            ("src/plan/plan.cc", "<gtest/gtest.h>"),
            ("src/plan/plan.cc", '"no_such_file.h"'),
        ]:
            with self.subTest(path=path, include=include):
                found = violations(path, include)
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith(f"{path}:1: "), found)


if __name__ == "__main__":
    unittest.main()
