"""The checks of libraries can say no: to other symbols, names, stacks and writable tables."""
import unittest

import check_elf
import check_exports

DYNAMIC = """
 0x000000000000000e (SONAME)             Library soname: [libsome.so.1]
 0x000000000000001e (FLAGS)              BIND_NOW
 0x000000006ffffffb (FLAGS_1)            Flags: NOW
"""
SEGMENTS = """
  LOAD           0x000000 0x0000000000000000 0x0000000000000000 0x005a58 0x005a58 R   0x1000
  LOAD           0x006000 0x0000000000006000 0x0000000000006000 0x311d05 0x311d05 R E 0x1000
  LOAD           0x33d928 0x000000000033d928 0x000000000033d928 0x0007c8 0x000808 RW  0x1000
  GNU_STACK      0x000000 0x0000000000000000 0x0000000000000000 0x000000 0x000000 RW  0x10
  GNU_RELRO      0x33d928 0x000000000033d928 0x000000000033d928 0x0006d8 0x0006d8 R   0x1
"""
SYMBOLS = "UND __stack_chk_fail"


def names(version):
    return list(check_elf.name_faults(DYNAMIC, f"libsome.so.{version}", "some", version))


def loading(dynamic, segments):
    return list(check_elf.load_faults(dynamic, segments))


def hardening(dynamic, segments, symbols):
    return list(check_elf.hardening_faults(dynamic, segments, symbols))


class ElfTest(unittest.TestCase):
    def test_accepts(self):
        self.assertEqual(loading(DYNAMIC, SEGMENTS), [])
        self.assertEqual(hardening(DYNAMIC, SEGMENTS, SYMBOLS), [])

    def test_other_soname(self):
        self.assertFalse([fault for fault in names("1.2.3") if fault.startswith("soname")])
        self.assertTrue([fault for fault in names("2.0.0") if fault.startswith("soname")])

    def test_missing_links(self):
        self.assertIn("libsome.so does not lead to libsome.so.1.2.3", names("1.2.3"))

    def test_executable_stack(self):
        self.assertTrue(loading(DYNAMIC, SEGMENTS.replace("RW  0x10\n", "RWE 0x10\n")))
        self.assertTrue(loading(DYNAMIC, SEGMENTS.replace("GNU_STACK", "GNU_OTHER")))

    def test_writable_code(self):
        self.assertTrue(loading(DYNAMIC, SEGMENTS.replace("R E 0x1000", "RWE 0x1000")))
        self.assertTrue(loading(DYNAMIC + " (TEXTREL) 0x0", SEGMENTS))

    def test_not_hardened(self):
        late = DYNAMIC.replace("BIND_NOW", "").replace("NOW", "")
        self.assertTrue(hardening(late, SEGMENTS, SYMBOLS))
        self.assertTrue(hardening(DYNAMIC, SEGMENTS.replace("GNU_RELRO", "NOTE"), SYMBOLS))
        self.assertTrue(hardening(DYNAMIC, SEGMENTS, ""))


class ExportsTest(unittest.TestCase):
    def test_both_directions(self):
        self.assertEqual(list(check_exports.differences(["a", "b"], ["a", "b"])), [])
        self.assertEqual(
            list(check_exports.differences(["a", "b"], ["b", "c"])),
            ["no longer exported: a", "exported, but not listed: c"],
        )
