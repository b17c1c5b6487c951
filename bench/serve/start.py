#!/usr/bin/env python3
"""Seconds from the start of a server to the first response of /health.

   bench/serve/start.py [--runs 10] [--settle 10] [--json FILE] -- COMMAND...

COMMAND starts the server, such as `build/bin/tessera serve DIR --port 0`. The first
start fills the caches (compiled programs, page cache); it is printed but does not
count, and its server runs for --settle seconds, to write the weight cache. The median
and the worst of the other starts count. CPU seconds, in user mode and in the kernel,
are printed too; they are more reliable on a busy machine."""

import argparse
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import time

ADDRESS = re.compile(r"ready: .* on http://([^:/]+):(\d+)")
PHASES = re.compile(r"ready in .*")


def processor_seconds(pid):
    """In user mode and in the kernel, of all threads (proc(5): fields 14 and 15)."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rpartition(")")[2].split()
    return [int(ticks) / os.sysconf("SC_CLK_TCK") for ticks in fields[11:13]]


def start(command, settle=0.0):
    """Seconds until /health answers 200, CPU seconds, and the server's "ready in"
    line."""
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
        processors = processor_seconds(server.pid)
        connection.close()
        if status != 200:
            sys.exit(f"/health answers {status}")
        time.sleep(settle)
        return seconds, processors, phases
    finally:
        server.send_signal(signal.SIGTERM)
        server.stderr.read()
        server.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--settle", type=float, default=10, metavar="SECONDS")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    if arguments.runs < 1:
        parser.error("--runs must be at least 1")
    times, processors = [], []
    for run in range(arguments.runs + 1):
        seconds, used, phases = start(arguments.command, 0 if run else arguments.settle)
        print(f"{'first:' if run == 0 else '':6} {seconds:.2f} s, CPU {used[0]:.2f} + {used[1]:.2f}  "
              f"{phases}", flush=True)
        times.append(seconds)
        processors.append(used)
    first, counted = times[0], times[1:]
    report = {"command": arguments.command, "first_s": first, "times_s": counted,
              "user_s": [user for user, _ in processors[1:]], "kernel_s": [kernel for _, kernel in processors[1:]],
              "median_s": statistics.median(counted), "worst_s": max(counted)}
    print(f"median {report['median_s']:.2f} s, worst {report['worst_s']:.2f} s of {len(counted)}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=2)


if __name__ == "__main__":
    main()
