#!/usr/bin/env python3
"""How long a server takes from its start to the first answer of /health.

   bench/serve/start.py [--runs 10] [--json FILE] -- COMMAND...

COMMAND starts the server, such as `build/bin/tessera serve DIR --port 0`. What a
first start leaves (compiled programs, pages of the file in memory) is what the
others are to find, so it is shown and does not count; the median and the worst of
the others do."""

import argparse
import http.client
import json
import re
import signal
import statistics
import subprocess
import sys
import time

ADDRESS = re.compile(r"ready: .* on http://([^:/]+):(\d+)")
PHASES = re.compile(r"ready in .*")


def start(command):
    """Seconds until /health answers 200, and what the server says of its phases."""
    begin = time.monotonic()
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    phases, lines = "", []
    try:
        for line in server.stderr:
            lines.append(line)
            if said := PHASES.search(line):
                phases = said.group()
            if found := ADDRESS.search(line):
                break
        else:
            sys.exit("the server ended before it was ready:\n" + "".join(lines))
        connection = http.client.HTTPConnection(found.group(1), int(found.group(2)), timeout=60)
        connection.request("GET", "/health")
        status = connection.getresponse().status
        seconds = time.monotonic() - begin
        connection.close()
        if status != 200:
            sys.exit(f"/health answers {status}")
        return seconds, phases
    finally:
        server.send_signal(signal.SIGTERM)
        server.stderr.read()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error("--runs must be at least 1")
    first = start(arguments.command)
    print(f"first: {first[0]:.2f} s  {first[1]}", flush=True)
    times = []
    for _ in range(arguments.runs):
        seconds, phases = start(arguments.command)
        times.append(seconds)
        print(f"       {seconds:.2f} s  {phases}", flush=True)
    report = {"command": arguments.command, "first_s": first[0], "times_s": times,
              "median_s": statistics.median(times), "worst_s": max(times)}
    print(f"median {report['median_s']:.2f} s, worst {report['worst_s']:.2f} s of {len(times)}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2)


if __name__ == "__main__":
    main()
