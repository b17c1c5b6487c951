#!/bin/bash
# run-tests.sh [BUILD] [--fast | --sweep] [--record] [LIT ARGUMENTS...]: runs the
# tests of a finished build.
#   --fast    leaves out tests that take long (test/README.md, "Tiers")
#   --sweep   adds more cases of some tests
#   --record  writes how long they took to test/times.txt
# Prints the slowest tests; the last line is "N passed, N failed" (and
# ", N skipped"). The exit status is 0 only if tests ran and none failed.
set -u
source_dir=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "${1:-$source_dir/build}" && pwd) || exit 1
shift
times=()
while :; do
  case ${1:-} in
  --fast) export TESSERA_TEST_TIER=fast ;;
  --sweep) export TESSERA_TEST_TIER=sweep ;;
  --record) times=("$source_dir/test/times.txt") ;;
  *) break ;;
  esac
  shift
done
if [ "${TESSERA_TEST_TIER:-}" = sweep ] && [ ${#times[@]} -gt 0 ]; then
  echo "run-tests.sh: --record is for what \`make test\` runs, without --sweep" >&2
  exit 1
fi
lit=${LIT:-/usr/lib/llvm-19/build/utils/lit/lit.py}
if [ ! -f "$lit" ]; then
  echo "run-tests.sh: no lit at $lit; install llvm-19-tools or set LIT" >&2
  exit 1
fi
report=$(mktemp "$build/test/report-XXXXXX.json")
trap 'rm -f "$report"' EXIT
# lit starts with the tests that took longest in its last run; the first run
# takes the recorded times.
order="$build/test/.lit_test_times.txt"
[ -e "$order" ] || grep -v '^#' "$source_dir/test/times.txt" >"$order"
rm -rf "$build/test/cache" # what tests have compiled (test/lit.cfg.py)
# No retries; skips are listed with the failures.
python3 "$lit" -sv --show-unsupported --show-skipped --output "$report" "$@" "$build/test"
status=$?
python3 "$source_dir/scripts/count-tests.py" "$report" "$status" ${times[@]+"${times[@]}"}
