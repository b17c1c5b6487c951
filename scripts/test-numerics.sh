#!/bin/bash
# Runs the generated kernels on the emulated GPU as hardware computes
# (runtime/hal/emulated/README.md), for several draws of the errors of
# approximate functions: every tolerance and every promise of the same bits.
# The suite itself has one run of each kernel in this mode.
#
#     scripts/test-numerics.sh [BUILD] [SEED...]
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
seeds=("${@:2}")
[ ${#seeds[@]} -gt 0 ] || seeds=(1 2 3)
status=0
for seed in "${seeds[@]}"; do
  export TESSERA_EMU_NUMERICS=hardware:$seed
  echo "== $TESSERA_EMU_NUMERICS"
  "$build/bin/unit/TilingTests" --gtest_brief=1 --gtest_filter='*sm_80*:*sm_90a*:-*CubinTest*' ||
    status=1
  "$build/bin/unit/ProgramKernelsTests" --gtest_brief=1 || status=1
  "$build/bin/unit/DecoderTests" --gtest_brief=1 --gtest_filter='*Emulated*' || status=1
done
exit $status
