#!/bin/bash
# run-tests.sh [BUILD] [LIT ARGUMENTS...]: runs every test of a finished build.
# The last line is "N passed, N failed" (and ", N skipped"); the exit status is
# 0 only if tests ran and none failed.
set -u
source_dir=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$source_dir/build}" && pwd) || exit 1
shift
lit=${LIT:-/usr/lib/llvm-19/build/utils/lit/lit.py}
if [ ! -f "$lit" ]; then
  echo "run-tests.sh: no lit at $lit; install llvm-19-tools or set LIT" >&2
  exit 1
fi
report=$(mktemp "$build/test/report-XXXXXX.json")
trap 'rm -f "$report"' EXIT
# No retries; skips are listed with the failures.
python3 "$lit" -sv --show-unsupported --show-skipped --output "$report" "$@" "$build/test"
status=$?
python3 "$source_dir/scripts/count-tests.py" "$report" "$status"
