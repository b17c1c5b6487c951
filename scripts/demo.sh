#!/bin/sh
# make demo: trains a model on Debian's manual pages and generates from it.
#   scripts/demo.sh [--force] [BUILD] [DIRECTORY]
# A step is skipped if its result exists, and an interrupted training run resumes
# from its last checkpoint; --force starts from scratch.
set -eu
cd "$(dirname "$0")/.."
force=no
if [ "${1:-}" = --force ]; then
  force=yes
  shift
fi
build=${1:-build}
demo=${2:-demo}
spec=models/specs/gpt2-demo
recipe=recipes/demo.yaml
tessera="$build/bin/tessera"
if [ ! -x "$tessera" ]; then
  echo "demo: no $tessera; build it first: make" >&2
  exit 1
fi
began=$(date +%s)
say() { printf '\n== %s (%d s)\n' "$1" $(($(date +%s) - began)); }
# Only files of this script: DIRECTORY may contain others.
[ $force = no ] || rm -rf "$demo/corpus" "$demo/tokenizer.json" "$demo/tokens" "$demo/run" "$demo/run.made-of"
mkdir -p "$demo"

say "corpus: English and Chinese manual pages, split by page"
if [ ! -f "$demo/corpus/corpus.json" ]; then
  rm -rf "$demo/corpus"
  python3 scripts/make-corpus.py -o "$demo/corpus"
fi

say "tokenizer and token shards"
[ -f "$demo/tokenizer.json" ] ||
  "$tessera" data tokenizer --input "$demo/corpus/train" --vocab 4096 -o "$demo/tokenizer.json"
[ -f "$demo/tokens/eval/index.json" ] ||
  "$tessera" data tokenize --force --tokenizer "$demo/tokenizer.json" --input "$demo/corpus/train" \
    --eval-input "$demo/corpus/eval" -o "$demo/tokens"

say "compile: $spec and $recipe into the executable train_demo"
"$tessera" compile "$spec" --mode train --recipe "$recipe" -o ./train_demo

say "train"
# A run depends on model, recipe and tokens; other ones start a new run.
made_of=$(cat "$spec/config.json" "$recipe" "$demo/tokens/train/index.json" | cksum)
if [ "$(cat "$demo/run.made-of" 2>/dev/null || true)" != "$made_of" ]; then
  rm -rf "$demo/run"
  echo "$made_of" >"$demo/run.made-of"
fi
./train_demo --data "$demo/tokens" --out "$demo/run" --resume

say "generate"
for prompt in "The command" "该命令"; do
  "$tessera" generate "$demo/run" --prompt "$prompt" --max-tokens 64 --temperature 0.8 --top-k 40 --seed 1 --quiet
  echo
done

# The loss of predicting by token frequency alone, and that of the model.
python3 - "$demo/tokens/eval/index.json" "$demo/run/metrics.jsonl" <<'END'
import json, math, sys
index = json.load(open(sys.argv[1]))
losses = [r["eval_loss"] for r in map(json.loads, open(sys.argv[2])) if r.get("eval_loss") is not None]
print("held-out text, nats a token:")
print(f"  {math.log(index['vocab_size']):.3f}  every token equally likely (ln V)")
print(f"  {index['unigram_entropy']:.3f}  every token by its frequency (unigram entropy)")
print(f"  {losses[0]:.3f}  the model before training")
print(f"  {losses[-1]:.3f}  the model now")
END
say "done; the run is in $demo/run; generate more: $tessera generate $demo/run --prompt ..."
