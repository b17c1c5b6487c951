"""Tiers of tests. scripts/run-tests.sh runs all but the sweeps, files with "sweep" in
their name: more cases of a test that it does run. With --fast it leaves out, too, what
took longer than a limit when it was last timed (test/times.txt, by --record); with
--sweep, nothing.
"""
import glob
import os

import lit.formats
import lit.Test

# Seconds, on two cores: of a file with RUN lines, and of a unit test, of which
# there are thousands.
FILE_LIMIT = 4.0
UNIT_LIMIT = 0.5


def is_fast():
    return os.environ.get("TESSERA_TEST_TIER") == "fast"


def is_sweep():
    return os.environ.get("TESSERA_TEST_TIER") == "sweep"


def sweeps(source_dir):
    """Names of files that are not to be run."""
    if is_sweep():
        return []
    found = glob.glob(os.path.join(source_dir, "test/**/*sweep*.test"), recursive=True)
    return [os.path.basename(path) for path in found]


def slow_tests(source_dir, limit):
    """Names as lit reports them, without the suite's."""
    with open(os.path.join(source_dir, "test", "times.txt"), encoding="utf-8") as file:
        times = [line.split(maxsplit=1) for line in file if not line.startswith("#")]
    return {name.strip().removeprefix("./") for seconds, name in times if float(seconds) > limit}


# Of a test that has not been timed, for the order only: longer than any other.
UNTIMED = 1000.0


def untimed_first(tests):
    """lit starts with what took longest, and would take what it does not know for short: a new test
    that takes minutes must not run alone at the end. Shards of unit tests are never timed."""
    for test in tests:
        test.previous_elapsed = test.previous_elapsed or UNTIMED
        yield test


class ShTest(lit.formats.ShTest):
    """Files with RUN lines. One that takes long is left out of the fast tier,
    unless it says `%if slow` of some of its commands: the others are its own
    choice for that tier."""

    def __init__(self, source_dir):
        super().__init__(execute_external=False)
        self.slow = slow_tests(source_dir, FILE_LIMIT) if is_fast() else set()

    def getTestsInDirectory(self, *args):
        return untimed_first(super().getTestsInDirectory(*args))

    def execute(self, test, lit_config):
        if "/".join(test.path_in_suite) in self.slow:
            with open(test.getSourcePath(), encoding="utf-8") as file:
                if "%if slow" not in file.read():
                    return lit.Test.UNSUPPORTED, "slow: not in the fast tier"
        return super().execute(test, lit_config)


class SmallShards(lit.formats.GoogleTest):
    """Runs a binary in shards of about 100 tests. lit's own have 512, of which the
    last would run alone for minutes."""

    def getTestsInDirectory(self, *args):
        return untimed_first(super().getTestsInDirectory(*args))

    def get_num_tests(self, *args):
        count = super().get_num_tests(*args)  # for the number of shards alone
        return count and 5 * count
