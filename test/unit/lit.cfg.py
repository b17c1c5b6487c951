# The GoogleTest binaries of build/bin/unit, each of their tests counted as one.
import os
import sys

sys.path.insert(0, os.path.join(config.tessera_source_dir, "test"))
import tiers

config.name = "tessera-unit"
config.test_source_root = os.path.join(config.tessera_bin_dir, "unit")
config.test_exec_root = config.test_source_root
config.test_format = tiers.SmallShards(".", "Tests")
# Where tests find the specs, corpora and golden files of the source tree.
config.environment["TESSERA_SOURCE_DIR"] = config.tessera_source_dir
# What tests compile, as test/lit.cfg.py says.
config.environment["XDG_CACHE_HOME"] = os.path.join(config.tessera_test_exec_root, "cache")
config.environment["TESSERA_TEST_CACHE"] = "1"
for name in ("HOME", "TMPDIR"):
    if name in os.environ:
        config.environment[name] = os.environ[name]
if tiers.is_fast():
    # lit separates a suite and its test by a slash, GoogleTest by a dot: "?" is either.
    slow = sorted(name.split("/", 1)[1].replace("/", "?")
                  for name in tiers.slow_tests(config.tessera_source_dir, tiers.UNIT_LIMIT)
                  if name.split("/", 1)[0].endswith("Tests"))
    config.environment["GTEST_FILTER"] = "*-" + ":".join(slow)
