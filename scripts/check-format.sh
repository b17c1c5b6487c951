#!/bin/bash
# check-format.sh: fails, with the location, if a tracked source is not formatted by
# clang-format 19 (.clang-format; fix it with clang-format-19 -i FILE), has a word
# that docs/glossary.md replaced, is too long a line or links what does not exist
# (check-words.py).
set -euo pipefail
cd "$(dirname "$0")/.."
# Reading a checkout of another user is safe.
git -c 'safe.directory=*' ls-files -z -- '*.cpp' '*.h' '*.cuh' ':!*_generated.h' |
  xargs -0 -r -n 50 clang-format-19 --dry-run -Werror
scripts/check-words.py
