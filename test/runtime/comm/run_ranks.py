"""run_ranks.py N COMMAND...: N ranks with the variables that torchrun sets.

Ends with the first exit status that is not 0. A rank that does not end after
another has failed is named and killed.
"""
import os
import socket
import subprocess
import sys

size, command = int(sys.argv[1]), sys.argv[2:]


def free_port():
    """Below those that the system gives away, or another test's connection takes
    it before rank 0 listens."""
    for i in range(12000):
        port = 20000 + (os.getpid() * 7 + i) % 12000
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    sys.exit("run_ranks: no port is free")


port = free_port()
ranks = [
    subprocess.Popen(command, env=os.environ | {
        "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)})
    for rank in range(size)]
worst = 0
for rank, process in enumerate(ranks):
    try:
        status = process.wait(timeout=5 if worst else 60)
    except subprocess.TimeoutExpired:
        print(f"run_ranks: rank {rank} does not end", file=sys.stderr)
        process.kill()
        status = 1
    worst = worst or status
sys.exit(worst % 256)
