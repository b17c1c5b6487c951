"""The fast tier (scripts/run-tests.sh --fast): all tests but those that took
longer than LIMIT when they were last timed (test/times.txt, by --record).
"""
import os

import lit.formats
import lit.Test

LIMIT = 4.0  # seconds, on two cores


def is_fast():
    return os.environ.get("TESSERA_TEST_TIER") == "fast"


def slow_tests(source_dir):
    """Names as lit reports them, without the suite's."""
    with open(os.path.join(source_dir, "test", "times.txt"), encoding="utf-8") as file:
        times = [line.split(maxsplit=1) for line in file if not line.startswith("#")]
    return {name.strip().removeprefix("./") for seconds, name in times if float(seconds) > LIMIT}


class ShTest(lit.formats.ShTest):
    """Files with RUN lines. One that takes long is left out of the fast tier,
    unless it says `%if slow` of some of its commands: the others are its own
    choice for that tier."""

    def __init__(self, source_dir):
        super().__init__(execute_external=False)
        self.slow = slow_tests(source_dir) if is_fast() else set()

    def execute(self, test, lit_config):
        if "/".join(test.path_in_suite) in self.slow:
            with open(test.getSourcePath(), encoding="utf-8") as file:
                if "%if slow" not in file.read():
                    return lit.Test.UNSUPPORTED, "slow: not in the fast tier"
        return super().execute(test, lit_config)
