#!/bin/sh
# Interesting (1): the module still takes a tanh.
if grep -q 'graph.tanh' "$1"; then exit 1; fi
exit 0
