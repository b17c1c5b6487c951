#!/bin/sh
# Draws the pictures of docs/reports.md: images.sh FOLDER. Run it from the
# repository after a change of the pages: test/compiler/report/images.sh docs/images
set -eu
out=$1
here=$(dirname "$0")
specs=$here/../../../models/specs clusters=$here/../../../hardware/clusters
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"

draw() { # PAGE IMAGE SECTION [OPTION...]
  page=$1 image=$2 section=$3
  shift 3
  python3 "$here/pages.py" chromium "$work/$page.html" --picture "$out/$image.png" --show "$section" "$@"
}

tessera compile "$specs/gpt2-demo" --mode train --set batch.micro=8 --set batch.sequence=128 --target cpu:avx2 \
  --cache off -o "$work/demo"
tessera bench kernels "$work/demo" --program train_step --repeats 5 --json "$work/times.json" >"$work/bench.txt"
tessera inspect "$work/demo" --html "$work/demo.html" --bench "$work/times.json"
draw demo report-kernels kernels --height 760
draw demo report-memory memory --height 700 --dark

tessera compile "$specs/llama-15m" --mode train --mesh pipe=2,data=2,tensor=2,zero=1 --set batch.micro=2 \
  --set batch.accumulate=4 --set batch.sequence=128 --set precision.compute=bf16 --target cpu:avx512bf16 --cache off \
  -o "$work/mesh"
tessera inspect "$work/mesh" --html "$work/mesh.html" --cluster "$clusters/dgx-h100-1x8.yaml"
draw mesh report-timeline timeline,schedule

tessera plan "$specs/moe-106b-a14b" --cluster "$clusters/dgx-a100-80g-32x8.yaml" --html "$work/plan.html" >"$work/plan.txt"
draw plan report-plan plans --height 760

mkdir "$work/run"
cp "$here/Inputs/metrics.jsonl" "$work/run"
tessera inspect "$work/run" --html "$work/run.html"
draw run report-run loss --dark
