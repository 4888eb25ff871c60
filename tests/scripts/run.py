"""Runs every *_test.py of this folder and ends with "N passed, N failed, N skipped"."""

import sys
import unittest
from pathlib import Path

sys.dont_write_bytecode = True


def main():
    suite = unittest.defaultTestLoader.discover(str(Path(__file__).parent), pattern="*_test.py")
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1).run(suite)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    failed = len({str(test) for test, _ in result.failures + result.errors}) or failed
    skipped = len(result.skipped)
    print(f"{result.testsRun - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
