#!/bin/sh
# make demo: from Debian's manual pages to a model that writes some.
#   scripts/demo.sh BUILD [DIRECTORY]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
demo=${2:-demo}
tessera="$build/bin/tessera"
began=$(date +%s)
say() { printf '\n== %s (%d s)\n' "$1" $(($(date +%s) - began)); }
mkdir -p "$demo"

say "corpus: English and Chinese manual pages, split by page"
[ -f "$demo/corpus/corpus.json" ] || python3 scripts/make-corpus.py -o "$demo/corpus"

say "tokenizer and token shards"
[ -f "$demo/tokenizer.json" ] || "$tessera" data tokenizer --input "$demo/corpus/train" --vocab 4096 -o "$demo/tokenizer.json"
[ -d "$demo/tokens" ] || "$tessera" data tokenize --tokenizer "$demo/tokenizer.json" --input "$demo/corpus/train" \
  --eval-input "$demo/corpus/eval" -o "$demo/tokens"

say "compile: models/specs/gpt2-demo and recipes/demo.yaml into an executable"
"$tessera" compile models/specs/gpt2-demo --mode train --recipe recipes/demo.yaml -o ./train_demo

say "train"
rm -rf "$demo/run"
./train_demo --data "$demo/tokens" --out "$demo/run"

say "generate"
for prompt in "The command" "该命令"; do
  "$tessera" generate "$demo/run" --prompt "$prompt" --max-tokens 64 --temperature 0.8 --seed 1
  echo
done
say "done; the run is in $demo/run"
