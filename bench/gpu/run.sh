#!/bin/bash
# run.sh [--emulated] [--device NAME] [IN [RESULTS]]: all GPU measurements, in one
# command of nine minutes at most. IN is the output of build.sh; nothing is compiled
# or downloaded. Each part has a time limit; a part that cannot run gives the reason,
# and the others continue. Writes results.json and table.txt to RESULTS. The exit
# code is 1 if a result was wrong or one of our programs failed, not if one was slow
# or ran out of time.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
emulated=no device=
while [[ ${1:-} == --* ]]; do
  case $1 in
  --emulated) emulated=yes ;;
  --device) device=$2; shift ;;
  *) echo "run.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
in=${1:-$here/out}
results=${2:-$in/results}
[[ $emulated == yes ]] && device=${device:-cuda-emu}
device=${device:-cuda:0}
[[ -x $in/tessera-run ]] || { echo "run.sh: no $in/tessera-run; build.sh makes it" >&2; exit 2; }
rm -rf "$results"
mkdir -p "$results/parts"
export PYTHONUNBUFFERED=1
limit=530 wrong=0

# note NAME OUTCOME [SECONDS]
note() {
  printf '%s\t%s\t%s\n' "$1" "$2" "${3:-0}" >>"$results/parts.tsv"
  echo "-- $1: $2"
}
# part NAME SECONDS COMMAND...: succeeds if the command does.
part() {
  local name=$1 seconds=$2 left=$((limit - SECONDS)) begin=$SECONDS code=0
  shift 2
  ((seconds < left)) || seconds=$left
  if ((seconds < 5)); then
    note "$name" "skipped: no time is left"
    return 124
  fi
  echo "== $name"
  timeout --kill-after=5 "$seconds" "$@" 2>&1 | tee "$results/parts/$name.log" || code=${PIPESTATUS[0]}
  case $code in
  0) note "$name" ok $((SECONDS - begin)) ;;
  124 | 137) note "$name" "stopped after $seconds s" $((SECONDS - begin)) ;;
  *) note "$name" "failed: $(tail -n 1 "$results/parts/$name.log")" $((SECONDS - begin)) ;;
  esac
  return "$code"
}
# ours NAME SECONDS COMMAND...: a part that must not fail, but may run out of time
ours() {
  local name=$1 seconds=$2 code=0
  shift 2
  part "$name" "$seconds" "$@" || code=$?
  case $code in
  0 | 124 | 137) ;;
  *) wrong=1 ;;
  esac
}
# kernels NAME SECONDS ARTIFACT OPTION...: each kernel against the roofline
kernels() {
  local name=$1 seconds=$2 artifact=$3
  shift 3
  ours "$name" "$seconds" "$in/tessera-run" "$in/$artifact.tsr" bench-kernels --device "$device" \
    --json "$results/parts/$name.json" "$@"
}

if nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader >"$results/parts/gpu.txt" 2>&1; then
  cat "$results/parts/gpu.txt"
else
  echo "no NVIDIA GPU found" | tee "$results/parts/gpu.txt"
fi

# Correctness first.
if [[ $emulated == yes ]]; then
  note exact "skipped: takes hours"
else
  ours exact 100 python3 "$here/exact.py" --device "$device" --json "$results/parts/exact.json" "$in"
fi
steps=20
[[ $emulated == yes ]] && steps=5
ours numerics 120 python3 "$here/numerics.py" --device "$device" --steps $steps \
  --json "$results/parts/numerics.json" "$in"
if [[ $emulated == yes ]]; then
  note sanitizer "skipped: the emulated GPU checks every access itself"
elif ! command -v compute-sanitizer >/dev/null; then
  note sanitizer "skipped: compute-sanitizer is not installed"
else
  for tool in memcheck racecheck synccheck; do
    TESSERA_CUDA=stream TESSERA_TUNE=generated ours "sanitizer-$tool" 40 compute-sanitizer --tool $tool --error-exitcode 9 \
      "$in/tessera-run" "$in/numerics-gpt2-bf16.tsr" --quiet --device "$device" --data "$in/tokens" \
      --out "$results/run-sanitizer" --steps 1
    rm -rf "$results/run-sanitizer"
  done
fi

# Then speed.
if [[ $emulated == yes ]]; then
  kernels tiny-step 60 numerics-tiny --repeats 1 --flush 1
  kernels tiny-decode 60 decode-tiny --program decode_2 --repeats 1 --flush 1
  note library "skipped: needs a GPU"
else
  # Generated kernels, also where the library would be called.
  while read -r program; do
    TESSERA_TUNE=generated kernels "$program" 20 kernels --program "$program"
  done <"$in/programs"
  part library 100 python3 "$here/library.py" --json "$results/parts/library.json"
  for model in gpt2 llama; do
    kernels "step-$model" 40 "step-$model"
  done
  for program in decode_1 decode_8 prefill_256; do
    kernels "llama-$program" 20 decode-llama --program $program
  done
  part pytorch-gpt2 105 python3 "$here/../train/pytorch_step.py" --device cuda --config "$here/../../models/specs/gpt2-124m" \
    --batch 8 --sequence 1024 --precision bf16 --steps 10
  part pytorch-llama 120 python3 "$here/../train/pytorch_step.py" --device cuda --config "$here/../../models/specs/llama-1b" \
    --batch 4 --sequence 2048 --precision bf16 --steps 5
fi

python3 "$here/report.py" "$results" | tee "$results/table.txt" || wrong=1
exit $wrong
