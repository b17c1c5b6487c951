"""What oracles of forms share: the probe's options and process, counts, and what failed."""
import argparse
import json
import subprocess
import sys


class Probe:
    def __init__(self, **counts):
        parser = argparse.ArgumentParser()
        parser.add_argument("probe")
        parser.add_argument("--cases", type=int, default=400)
        parser.add_argument("--seed", type=int, default=1)
        self.options = parser.parse_args()
        self.process = subprocess.Popen([self.options.probe], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.counts = dict(counts, failures=0)

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def fail(self, *what):
        self.counts["failures"] += 1
        if self.counts["failures"] <= 10:
            print("FAIL", *what)

    def finish(self, summary):
        """Prints `summary` with the counts in it, and ends the program."""
        self.process.stdin.close()
        print(summary.format(**self.counts))
        sys.exit(1 if self.counts["failures"] else 0)
