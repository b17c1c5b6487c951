#!/bin/sh
# Draws the pictures of docs/serving.md: images.sh SERVE-CHECK FOLDER [SECONDS of load].
# Run it from the repository after a change of the page:
#   PATH=build/bin:$PATH test/runtime/serve/images.sh build/bin/serve-check docs/images
set -eu
check=$1 out=$2 seconds=${3:-66}
here=$(dirname "$0")
root=$here/../../..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The charts are of a run of gpt2-demo. Its speed is that of a trained one.
mkdir "$work/text"
for page in "$root"/docs/*.md; do cp "$page" "$work/text/$(basename "$page" .md).txt"; done
tessera data tokenizer --input "$work/text" --vocab 2048 -o "$work/tokenizer.json"
tessera data tokenize --tokenizer "$work/tokenizer.json" --input "$work/text" -o "$work/tokens"
tessera compile "$root/models/specs/gpt2-demo" --mode train --set batch.micro=2 --set batch.sequence=256 -o "$work/train"
"$work/train" --data "$work/tokens" --out "$work/run" --steps 2
python3 "$here/images.py" --load "$seconds" "$check" chromium "$out" -- \
  tessera serve "$work/run" --port 0 --served-model-name gpt2-demo --kv-pages 96
