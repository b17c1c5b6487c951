# The GoogleTest binaries of build/bin/unit, each of their tests counted as one.
import os
import sys

import lit.formats

sys.path.insert(0, os.path.join(config.tessera_source_dir, "test"))
import tiers


class SmallShards(lit.formats.GoogleTest):
    """Runs a binary in shards of about 100 tests. lit's own have 512, of which the
    last would run alone for minutes."""

    def get_num_tests(self, *args):
        count = super().get_num_tests(*args)  # for the number of shards alone
        return count and 5 * count


config.name = "tessera-unit"
config.test_source_root = os.path.join(config.tessera_bin_dir, "unit")
config.test_exec_root = config.test_source_root
config.test_format = SmallShards(".", "Tests")
# Where tests find the specs, corpora and golden files of the source tree.
config.environment["TESSERA_SOURCE_DIR"] = config.tessera_source_dir
for name in ("HOME", "TMPDIR"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
if tiers.is_fast():
    slow = sorted(name.split("/", 1)[1] for name in tiers.slow_tests(config.tessera_source_dir)
                  if name.split("/", 1)[0].endswith("Tests"))
    config.environment["GTEST_FILTER"] = "*-" + ":".join(slow)
