#!/usr/bin/env python3
"""A reward program for tessera rl: 1 where a completion is the prompt's `answer`."""
import json
import sys

for line in sys.stdin:
    question = json.loads(line)
    answer = str(question["prompt"]["answer"])
    print(question["id"], float(question["completion"] == answer), flush=True)
