"""tessera rl with rollout workers that come over TCP: the bits of a run without,
also if workers or the learner are killed, and what is refused.

    rl_workers.py BIN SCRATCH
"""
import collections
import contextlib
import hashlib
import hmac
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import time

import harness
import rl_task
from rl import Runs, steps_of, write_spec

SECRET = "a secret of this test alone"
STEPS = 6
DEADLINE = 120  # s, for what takes seconds


class NetRuns(Runs):
    def __init__(self, binaries, scratch):
        self.tessera = pathlib.Path(binaries) / "tessera"
        self.scratch = pathlib.Path(scratch)
        self.model, self.prompts = rl_task.make_base(
            self.tessera, self.scratch / "base", write_spec(self.scratch / "spec"), 2, 20,
            ["batch.micro=4", "optimizer.lr=3e-3", "lr_schedule.total=20",
             "lr_schedule.warmup=2", "eval.every=0"], examples=200)
        self.reward = killer(self, "none", -1, 0)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"

    def learner(self, out, reward=None, *more):
        """It prints what it says to a file, so that no pipe has to be read."""
        log = open(self.scratch / f"{out}.log", "a")
        return subprocess.Popen(
            [*self.command(out, STEPS, reward or self.reward, "--rollout-listen", self.address, *more),
             "--dump-metrics"], stdout=subprocess.PIPE, stderr=log, text=True, env=environment())

    def log(self, name):
        return (self.scratch / f"{name}.log").read_text()

    def worker(self, name, secret=SECRET, *more):
        log = open(self.scratch / f"{name}.log", "a")
        return subprocess.Popen([self.tessera, "rollout-worker", "--connect", self.address,
                                 "--threads", "1", *more], stderr=log, env=environment(secret))

    @contextlib.contextmanager
    def workers(self, *names):
        started = [self.worker(name) for name in names]
        try:
            yield started
        finally:
            for each in started:
                each.kill()
                each.wait()

    def await_log(self, name, text, count=1):
        deadline = time.monotonic() + DEADLINE
        while self.log(name).count(text) < count:
            if time.monotonic() > deadline:
                sys.exit(f"FAILED: {name} did not say '{text}':\n{self.log(name)}")
            time.sleep(0.02)


def environment(secret=SECRET):
    return os.environ | {"TESSERA_ROLLOUT_SECRET": secret}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def finish(process, code=0):
    output = process.communicate(timeout=DEADLINE)[0]
    harness.check(process.returncode == code, f"it ended with code {code}")
    return [line for line in output.splitlines() if line.startswith("step ")]


def check_bits(runs, whole):
    """A worker joins in the midst of the run, another one is killed, and a peer that is none
    comes."""
    with runs.workers("first") as (first,):
        reward = killer(runs, "worker", 101, first.pid)
        learner = runs.learner("joined", reward)
        runs.await_log("joined", "joins")
        second = runs.worker("second")
        strangers(runs)
        lines = finish(learner)
        first.wait(DEADLINE)
        second.wait(DEADLINE)
    harness.check(lines == whole, "workers over TCP, one killed: the bits of a run without")
    said = runs.log("joined")
    harness.check("closed its end" in said and "which is not a rollout worker" in said,
                  "the learner names peers that it lost or refused")
    harness.check(second.returncode == 0 and "has ended the run" in runs.log("second"),
                  "a worker ends with the run")
    rollouts = [record["rollout"] for record in harness.metrics(runs.scratch / "joined")]
    harness.check(all(each["publish_time"] > 0 and each["publish_bytes"] > 1000
                      for each in rollouts), "weights take time to be handed over")


def killer(runs, name, questions, pid):
    """A reward program that kills a process at a question, and not again; 0: the learner. The
    model has not learned the task, so some letters count."""
    path = runs.scratch / f"kill-{name}.py"
    path.write_text(f"""
import json, os, pathlib, signal, sys
flag = pathlib.Path(__file__ + ".done")
for number, line in enumerate(sys.stdin):
    if number == {questions} and not flag.exists():
        flag.touch()
        os.kill({pid} or os.getppid(), signal.SIGKILL)
        {pid} or sys.exit()
    question = json.loads(line)
    print(len(set(question["completion"]) & set("abcde")), flush=True)
""")
    return f"exec {sys.executable} {path}"


def receive(peer, size):
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            return data
        data += more
    return data


def strangers(runs):
    """Bytes that are no greeting, and a worker that Python plays: it signs by HMAC-SHA256."""
    with socket.create_connection(("127.0.0.1", runs.port)) as peer:
        peer.sendall(b"GET / HTTP/1.1\r\n" * 20)
        receive(peer, 48)
    for secret, welcome in ((SECRET, True), ("another secret of this test", False)):
        with socket.create_connection(("127.0.0.1", runs.port)) as peer:
            peer.settimeout(DEADLINE)
            theirs = receive(peer, 48)
            magic, protocol, role = struct.unpack("<QII", theirs[:16])
            ours = struct.pack("<QII", magic, protocol, 1) + os.urandom(32)

            def signature(role):
                return hmac.new(secret.encode(), struct.pack("<I", role) + theirs + ours,
                                hashlib.sha256).digest()

            peer.sendall(ours + signature(1))
            answer = receive(peer, 40)
            harness.check(role == 0 and (answer[:4] == bytes(4)) == welcome and
                          (answer[8:] == signature(0)) == welcome,
                          f"Python's HMAC of {'the' if welcome else 'another'} secret")


def check_learner_killed(runs, whole):
    """The worker stays, and samples for the learner that resumes."""
    with runs.workers("patient") as (worker,):
        learner = runs.learner("learner-killed", killer(runs, "learner", 170, 0))
        before = finish(learner, -signal.SIGKILL)
        runs.await_log("patient", "has gone; trying to reach it again")
        after = finish(runs.learner("learner-killed", None, "--resume"))
        worker.wait(DEADLINE)
    steps = steps_of(before) | steps_of(after)
    harness.check([steps[i + 1] for i in range(STEPS)] == whole,
                  "the learner was killed: resumed with the bits of a run that was not")
    counts = collections.Counter(line["group"] for line in runs.groups("learner-killed")
                                 if "group" in line)
    harness.check(sorted(counts) == list(range(4 * STEPS)) and max(counts.values()) == 1,
                  "the learner was killed: every group once in the journal")
    harness.check(worker.returncode == 0, "and the worker stayed until the end")


def check_refused(runs):
    learner = runs.learner("refused")
    runs.await_log("refused", "rollout workers may join")
    worker = (runs.tessera, "rollout-worker", "--connect", runs.address)
    harness.refuses("another secret", f"{runs.address} has another secret",
                    env=environment("another secret of this test"))(*worker)
    learner.kill()
    learner.wait()
    harness.refuses("no learner", "no learner within 0 s: cannot connect to",
                    env=environment())(*worker, "--reconnect", 0)
    harness.refuses("no HOST:PORT", "--connect: 'nowhere' is not HOST:PORT")(
        *worker[:3], "nowhere")
    harness.refuses("a short secret", "has a secret of 5 characters",
                    env=environment("short"))(*worker)
    command = runs.command("refused", STEPS, runs.reward, "--quiet")
    harness.refuses("no secret", "other machines can reach 0.0.0.0:",
                    "TESSERA_ROLLOUT_SECRET")(*command, "--rollout-listen", "0.0.0.0:0")
    harness.refuses("a secret without workers", "name where they join")(
        *command, "--rollout-secret-file", runs.prompts)


def main():
    os.environ.pop("TESSERA_ROLLOUT_SECRET", None)
    runs = NetRuns(*sys.argv[1:3])
    whole = runs.run("alone", STEPS, runs.reward)
    harness.check(all(float.fromhex(line.split()[5]) > 0 for line in whole),
                  "there is something to learn in every step")
    check_bits(runs, whole)
    check_learner_killed(runs, whole)
    check_refused(runs)


if __name__ == "__main__":
    main()
