#!/bin/sh
# build.sh [--emulated] [BUILD [OUT]]: writes everything that run.sh needs on a GPU
# machine without a compiler, about 40 MB, to OUT (bench/gpu/out). --emulated makes
# only what a run without a GPU needs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(dirname "$(dirname "$here")")
emulated=no
if [ "${1:-}" = --emulated ]; then
  emulated=yes
  shift
fi
build=${1:-$root/build}
out=${2:-$here/out}
tessera=$build/bin/tessera
[ -x "$tessera" ] || { echo "build.sh: no $tessera; build it first: make" >&2; exit 1; }
rm -rf "$out"
mkdir -p "$out"

# The runtime, which needs only libraries of a base system.
strip -o "$out/tessera-run" "$build/bin/tessera-run"

# Tokens for the training runs that are compared: our own documentation.
"$tessera" data tokenizer --vocab 400 --input "$root"/docs/*.md -o "$out/tokenizer.json" 2>"$out/log"
"$tessera" data tokenize --tokenizer "$out/tokenizer.json" --input "$root"/docs/*.md \
  --eval-input "$root/README.md" -o "$out/tokens" 2>>"$out/log"

# artifact NAME ARGUMENT..., decoder NAME ARGUMENT...: training programs, and
# inference programs
artifact() {
  name=$1
  shift
  "$tessera" compile "$@" --mode artifact -o "$out/$name.tsr"
}
decoder() {
  name=$1
  shift
  "$tessera" compile "$@" --mode infer -o "$out/$name.tsr"
}
small='--set lr_schedule.warmup=2 --set lr_schedule.total=100 --set optimizer.lr=2e-3 --set eval.every=0'
specs=$root/models/specs
if [ $emulated = yes ]; then
  # shellcheck disable=SC2086 # the settings are words
  artifact numerics-tiny "$here/tiny" $small --set batch.micro=2 --set batch.sequence=16 \
    --set precision.compute=bf16 --target cpu:avx2,cuda:sm_80
  decoder decode-tiny "$here/tiny" --set inference.batch=2 --set inference.chunk=8 --set inference.page=8 \
    --set precision.compute=bf16 --target cuda:sm_80
  exit
fi
both=cuda:sm_80,cuda:sm_90a
# shellcheck disable=SC2086
for precision in fp32 bf16; do
  artifact numerics-gpt2-$precision "$specs/tiny-gpt2" $small --set batch.micro=8 --set batch.sequence=64 \
    --set precision.compute=$precision --target cpu,$both --no-emulate
  artifact numerics-llama-$precision "$specs/llama-15m" $small --set batch.micro=2 --set batch.sequence=128 \
    --set precision.compute=$precision --target cpu,$both --no-emulate
done
"$here/exact.py" --programs '.*' >"$out/exact.mlir"
artifact exact --from partition "$out/exact.mlir" --target cpu,$both --no-emulate
artifact kernels --from partition "$here/kernels.mlir" --target $both --no-emulate
# As public reproductions of GPT-2 train, but one microbatch of 8 is a step.
artifact step-gpt2 "$specs/gpt2-124m" --recipe "$root/recipes/gpt2-124m.yaml" --set batch.micro=8 \
  --set batch.accumulate=1 --target $both --no-emulate
artifact step-llama "$specs/llama-1b" --set batch.micro=4 --set batch.sequence=2048 \
  --set precision.compute=bf16 --target $both --no-emulate
# A batch of eight at 4096 tokens each.
decoder decode-llama "$specs/llama-1b" --set precision.compute=bf16 --target $both --no-emulate
sed -n 's/^func.func @\([a-z0-9_]*\).*/\1/p' "$here/kernels.mlir" >"$out/programs"
du -sh "$out"
