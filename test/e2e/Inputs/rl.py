"""tessera rl: rewards rise, a run that was killed has the bits of one that was
not, and what is refused.

    rl.py BIN SCRATCH
"""
import collections
import contextlib
import http.server
import json
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import harness
import rl_task

MATCH = harness.SOURCE / "examples/rl/match.py"
SETS = ["batch.sequence=128", "batch.micro=4", "rollout.max_tokens=5",
        "rollout.prompts=4", "rollout.group=12", "optimizer.lr=2e-3",
        "optimizer.weight_decay=0", "lr_schedule.name=constant",
        "checkpoint.every=3", "checkpoint.keep=0"]


def write_spec(folder):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "vocab_size": 257, "hidden_size": 64, "intermediate_size": 192,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
        "head_dim": 16, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": True, "bos_token_id": 0,
        "eos_token_id": 0}))
    return folder


class Runs:
    def __init__(self, binaries, scratch):
        self.tessera = pathlib.Path(binaries) / "tessera"
        self.scratch = pathlib.Path(scratch)
        self.model, self.prompts = rl_task.make_base(
            self.tessera, self.scratch / "base", write_spec(self.scratch / "spec"), 2, 150,
            ["batch.micro=16", "optimizer.lr=3e-3", "lr_schedule.total=150",
             "lr_schedule.warmup=10", "eval.every=0"])

    def command(self, out, steps, reward, *more, sets=()):
        keys = [word for key in [*SETS, *sets] for word in ("--set", key)]
        return [str(word) for word in (
            self.tessera, "rl", self.model, "--prompts", self.prompts, "--reward", reward,
            "--out", self.scratch / out, "--steps", steps, *keys, *more)]

    def run(self, *arguments, code=0, **options):
        return harness.run(*self.command(*arguments, **options), "--quiet",
                           "--dump-metrics", code=code).stdout.splitlines()

    def groups(self, out):
        lines = (self.scratch / out / "samples.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines[1:]]

    def killer(self, questions, workers=False, learner=True):
        """A reward program that kills the run at a question, and not again."""
        path = self.scratch / f"killer-{questions}{'-worker' * workers}.py"
        path.write_text(f"""
import json, os, pathlib, signal, sys
flag = pathlib.Path(__file__ + ".done")

def workers():
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(bytes(1))
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, IndexError):
            continue
        if parent == os.getppid() and b"rollout-worker" in words:
            yield int(folder.name)

for number, line in enumerate(sys.stdin):
    if number == {questions} and not flag.exists():
        found = sorted(workers())
        flag.write_text(" ".join(map(str, found)))
        if {workers}:
            os.kill(found[0], signal.SIGKILL)
        if {learner}:
            os.kill(os.getppid(), signal.SIGKILL)
            sys.exit()
    question = json.loads(line)
    print(float(question["completion"] == question["prompt"]["answer"]), flush=True)
""")
        return f"exec {sys.executable} {path}"


def check_learning(runs):
    reward = f"{sys.executable} {MATCH}"
    lines = runs.run("learned", 45, reward, "--eval-prompts", runs.prompts,
                     sets=["eval.every=22"])
    harness.check(len(lines) == 45, "a line of metrics for each step")
    records = harness.metrics(runs.scratch / "learned")
    rewards = [record["rollout"]["reward"] for record in records]
    first, last = sum(rewards[:3]) / 3, sum(rewards[-9:]) / 9
    harness.check(first < 0.3 and last > first + 0.2,
                  f"rewards rise from {first:.3f} to {last:.3f}")
    held = {record["step"]: record["rollout"]["eval_reward"] for record in records
            if "eval_reward" in record["rollout"]}
    harness.check(sorted(held) == [22, 44, 45] and held[45] > 0.4 and held[22] > 0,
                  f"and so do those of held-out prompts: {held}")
    distances = [abs(record["policy"]["kl"]) for record in records]
    ratios = [abs(record["policy"]["ratio"] - 1) for record in records]
    harness.check(max(distances) < 1e-6 and max(ratios) < 1e-4,
                  "the learner gives tokens the probabilities with which they were sampled")
    groups = runs.groups("learned")
    harness.check(len(groups) == 45 * 4, "the journal has every group")
    return lines


def killed(runs, out, steps, reward, *more, **options):
    done = subprocess.run([*runs.command(out, steps, reward, *more, **options), "--quiet",
                           "--dump-metrics"], stdout=subprocess.PIPE, text=True)
    harness.check(done.returncode == -9, f"{out}: the run was killed")
    return done.stdout.splitlines()


def steps_of(lines):
    return {int(re.match(r"step (\d+) ", line).group(1)): line for line in lines}


def check_kills(runs, whole):
    for questions in (30, 250, 401):
        out, reward = f"killed-{questions}", runs.killer(questions)
        before = killed(runs, out, 12, reward)
        after = runs.run(out, 12, reward, "--resume")
        steps = steps_of(before) | steps_of(after)
        harness.check([steps[i + 1] for i in range(12)] == whole[:12],
                      f"{out}: resumed with the bits of a run that was not")
        counts = collections.Counter(group["group"] for group in runs.groups(out))
        harness.check(sorted(counts) == list(range(48)) and max(counts.values()) == 1,
                      f"{out}: every group once in the journal")


def check_workers(runs, whole):
    """Other processes sample the same, and may be killed."""
    more = ["--rollout-workers", 2]
    harness.check(runs.run("workers", 12, f"{sys.executable} {MATCH}", *more) == whole[:12],
                  "two rollout workers: the bits of a run without")
    # A worker alone: the run goes on.
    reward = runs.killer(301, workers=True, learner=False)
    done = subprocess.run([*runs.command("worker-killed", 12, reward, *more), "--dump-metrics"],
                          capture_output=True, text=True)
    steps = [line for line in done.stdout.splitlines() if line.startswith("step ")]
    harness.check(done.returncode == 0 and steps == whole[:12],
                  "a rollout worker was killed: the bits of a run that was not")
    harness.check("was ended by signal 9; another one samples again" in done.stderr,
                  "and a line says so")
    for workers in (False, True):
        reward = runs.killer(260, workers=workers)
        out = "both-killed" if workers else "learner-killed"
        before = killed(runs, out, 12, reward, *more)
        flag = runs.scratch / f"killer-260{'-worker' * workers}.py.done"
        pids = [pathlib.Path("/proc") / pid for pid in flag.read_text().split()]
        harness.check(len(pids) == 2, f"{out}: there were two workers")
        deadline = time.monotonic() + 60
        while any(pid.exists() for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.1)
        harness.check(not any(pid.exists() for pid in pids), f"{out}: no worker is left")
        after = runs.run(out, 12, reward, "--resume", *more)
        steps = steps_of(before) | steps_of(after)
        harness.check([steps[i + 1] for i in range(12)] == whole[:12],
                      f"{out}: resumed with the bits of a run that was not")
        counts = collections.Counter(group["group"] for group in runs.groups(out))
        harness.check(sorted(counts) == list(range(48)) and max(counts.values()) == 1,
                      f"{out}: every group once in the journal")
    # Asynchronous, with a worker killed.
    reward = runs.killer(400, workers=True, learner=False)
    runs.run("stale-worker", 12, reward, *more, sets=["rollout.staleness=2"])
    groups = runs.groups("stale-worker")
    harness.check(sorted(group["group"] for group in groups) == list(range(48)),
                  "asynchronous, a rollout worker was killed: every group once in the journal")
    late = [group["group"] // 4 - version for group in groups
            for sample in group["samples"] for version in sample["versions"]]
    harness.check(min(late) >= 0 and max(late) <= 2,
                  "asynchronous, a rollout worker was killed: no token is older than allowed")


@contextlib.contextmanager
def reward_server():
    """Rewards as match.py gives them, except to completions of path /broken."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            reward = float(question["completion"] == question["prompt"]["answer"])
            answer = json.dumps({"reward": reward} if question["id"] % 2 else reward)
            self.send_response(500 if self.path == "/broken" else 200)
            self.end_headers()
            self.wfile.write(answer.encode())

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def check_server(runs, whole):
    with reward_server() as url:
        harness.check(runs.run("served", 6, f"{url}/score") == whole[:6],
                      "rewards by a server: the bits of those by a program")
        harness.refuses("a server that fails", "prompts.jsonl:", "it answered 500")(
            *runs.command("refused", 2, f"{url}/broken", "--quiet"))
    shutil.rmtree(runs.scratch / "refused", ignore_errors=True)
    harness.refuses("no server", "prompts.jsonl:", "cannot connect to 127.0.0.1:1:")(
        *runs.command("refused", 2, "http://127.0.0.1:1", "--quiet"))
    shutil.rmtree(runs.scratch / "refused", ignore_errors=True)


def check_stale_kill(runs):
    """What was learned from before is learned from again, in the same steps."""
    reward = runs.killer(450)
    # Without a checkpoint, so that all steps are made again.
    sets = ["rollout.staleness=2", "checkpoint.every=0"]
    before = steps_of(killed(runs, "stale", 14, reward, sets=sets))
    after = steps_of(runs.run("stale", 14, reward, "--resume", sets=sets))
    both = set(before) & set(after)
    harness.check(both and all(before[step] == after[step] for step in both),
                  f"asynchronous: {len(both)} steps again, with the same bits")
    harness.check(max(after) == 14, "and the run ends")
    groups = runs.groups("stale")
    harness.check(len({group["group"] for group in groups}) == len(groups),
                  "asynchronous: every group once in the journal")
    late = [group["group"] // 4 - version for group in groups
            for sample in group["samples"] for version in sample["versions"]]
    harness.check(min(late) >= 0 and max(late) <= 2,
                  "asynchronous: no token is older than allowed")


def check_variants(runs):
    """An adapter is in the weights that sample, and a reference model is where
    training began: of a quantized base, that base."""
    reward = f"{sys.executable} {MATCH}"
    for base in ("fp32", "int4"):
        out = f"adapter-{base}"
        runs.run(out, 12, reward, sets=["adapter.kind=dora", "adapter.rank=4", f"adapter.base={base}",
                                        "optimizer.lr=2e-2", "policy.kl.beta=0.05"])
        policies = [record["policy"] for record in harness.metrics(runs.scratch / out)]
        harness.check(max(abs(policy["ratio"] - 1) for policy in policies) < 1e-3,
                      f"{base}: the model that samples has the adapter")
        distances = [policy["kl_reference"] for policy in policies]
        harness.check(abs(distances[0]) < 1e-6 and distances[-1] > 1e-3,
                      f"{base}: the distance to the reference model grows from 0")
        harness.run(runs.tessera, "export", runs.scratch / out, "--merge", "-o",
                    runs.scratch / f"merged-{base}")
    for task, keys in {"DAPO": ["policy.aggregate=token", "policy.clip_high=0.28"],
                       "Dr. GRPO": ["policy.aggregate=constant", "policy.length=5",
                                    "rollout.scale=none"],
                       "GSPO": ["policy.ratio=sequence", "policy.clip_low=3e-4",
                                "policy.clip_high=4e-4"],
                       "RLOO": ["rollout.baseline=leave_one_out", "rollout.scale=none"],
                       "bf16": ["precision.compute=bf16"]}.items():
        out = task.replace(" ", "-")
        runs.run(out, 8, reward, sets=keys)
        ratios = [record["policy"]["ratio"] for record in harness.metrics(runs.scratch / out)]
        bound = 2e-2 if task == "bf16" else 1e-3
        harness.check(max(abs(ratio - 1) for ratio in ratios) < bound, f"{task} runs")


def check_prompts(runs):
    """Where the tokens of a prompt see each other, they do when it samples, when it is
    compared and when it learns."""
    runs.run("prompts", 6, f"{sys.executable} {MATCH}",
             sets=["attention.prompts=bidirectional", "policy.kl.beta=0.05"])
    policies = [record["policy"] for record in harness.metrics(runs.scratch / "prompts")]
    harness.check(all(abs(policy["kl"]) < 1e-6 and abs(policy["ratio"] - 1) < 1e-4
                      for policy in policies),
                  "bidirectional prompts: tokens have the probabilities with which they were sampled")
    harness.check(abs(policies[0]["kl_reference"]) < 1e-6 and policies[-1]["kl_reference"] > 1e-6,
                  "and the distance to the reference model grows from 0")


def check_gates(runs):
    reward, more = f"{sys.executable} {MATCH}", ["--eval-prompts", runs.prompts]
    command = runs.command("gated", 9, reward, *more,
                           sets=["eval.every=3", "gates.require=[eval_reward >= 2]"])
    harness.refuses("a gate that is missed", "eval_reward", "2")(*command, "--quiet")
    harness.check(harness.metrics(runs.scratch / "gated")[-1]["step"] == 3,
                  "which ends the run at its evaluation")
    runs.run("passed", 3, reward, *more, sets=["eval.every=3", "gates.require=[eval_reward >= 0]"])


def check_memory(runs):
    """The plan is that of all models, and holds."""
    done = harness.run(*runs.command("memory", 3, f"{sys.executable} {MATCH}",
                                     sets=["policy.kl.beta=0.05"]))
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    said = re.search(r"\npeak memory: (.*) resident; (.*) were planned and (.*) are outside",
                     done.stderr).groups()
    peak, planned, outside = (float(number) * units[unit]
                              for number, unit in (each.split() for each in said))
    harness.check(re.search(r"planned peak memory: .* rollout engine, .* reference model\)",
                            done.stderr), "the plan names the models that are not trained")
    harness.check(peak <= 1.1 * (planned + outside),
                  f"peak, planned and outside of the plan: {', '.join(said)}")


def check_recurrent(runs):
    """A Mamba-2, trained on documents and exported: its programs divide sequences in other ways
    than the learner's, so it samples with numerics of inference, without being asked to."""
    folder = runs.scratch / "recurrent"
    (folder / "spec").mkdir(parents=True)
    (folder / "spec" / "config.json").write_text(json.dumps({
        "architectures": ["Mamba2ForCausalLM"], "model_type": "mamba2", "hidden_act": "silu",
        "vocab_size": 257, "hidden_size": 32, "num_heads": 4, "head_dim": 16, "state_size": 8,
        "n_groups": 1, "expand": 2, "num_hidden_layers": 2, "bos_token_id": 0, "eos_token_id": 0,
        "pad_token_id": 0}))
    model, prompts = rl_task.make_base(
        runs.tessera, folder / "base", folder / "spec", 2, 20,
        ["batch.micro=4", "optimizer.lr=3e-3", "eval.every=0"], examples=400)
    out = folder / "run"
    keys = [word for key in SETS for word in ("--set", key)]
    harness.run(runs.tessera, "rl", model, "--prompts", prompts, "--reward",
                f"{sys.executable} {MATCH}", "--out", out, "--steps", 2, *keys, "--quiet")
    first = harness.metrics(out)[0]["policy"]
    harness.check(abs(first["ratio"] - 1) < 1e-4 and abs(first["kl"]) < 1e-4,
                  "recurrent layers: the learner agrees with the sampler but for rounding")


def check_errors(runs):
    reward = f"{sys.executable} {MATCH}"

    def refuses(what, *parts, sets=(), prompts=None, reward=reward, more=(), out="refused"):
        command = runs.command(out, 2, reward, "--quiet", *more, sets=sets)
        if prompts is not None:
            path = runs.scratch / "other.jsonl"
            path.write_text(prompts)
            command[command.index("--prompts") + 1] = str(path)
        harness.refuses(what, *parts)(*command)
        shutil.rmtree(runs.scratch / "refused", ignore_errors=True)

    refuses("a program that ends", "prompts.jsonl:", "exited with code 3 without an answer",
            "rollout.on_reward_failure: drop", reward="read -r line; exit 3")
    # It is noticed before the first completion, or, if compilation is faster, at it.
    refuses("a program that is not there", "it exited with code 127 (the shell did not find it)",
            reward="no-such-program 2>/dev/null")
    refuses("a directory", f"write model:{runs.model} if it is a reward model's",
            reward=str(runs.model))
    refuses("a reward model that is not there", "--reward: ", reward="model:nowhere")
    refuses("no number", "'yes', which is not a number", reward="read -r line; echo yes")
    refuses("a program that hangs", "no line within 1 s", sets=["rollout.reward_timeout=1"],
            reward="sleep 50")
    refuses("a batch that is too small", "rollout.prompts x rollout.group = 48",
            sets=["batch.micro=1"])
    refuses("a long prompt", "other.jsonl:1: the prompt has", "rollout.max_tokens",
            prompts=json.dumps({"prompt": "a" * 130}) + "\n")
    refuses("messages without a template", "no chat template",
            prompts=json.dumps({"messages": [{"role": "user", "content": "a"}]}) + "\n")
    refuses("a run that is there", "already holds step-", out="learned")
    refuses("other prompts", "is of other prompts; resume with", out="learned",
            prompts=json.dumps({"prompt": "abc>", "answer": "cba"}) + "\n", more=["--resume"])
    first, *rest = runs.prompts.read_text().splitlines()
    refuses("prompts of another answer", "is of other prompts; resume with", out="learned",
            prompts="\n".join([json.dumps(json.loads(first) | {"answer": "?"}), *rest]) + "\n",
            more=["--resume"])
    changed = harness.run(*runs.command("learned", 46, reward, "--resume",
                                           sets=["policy.clip_high=0.3"]))
    harness.check("the recipe has changed: policy.clip_high: 0.2 before, 0.3 now" in changed.stderr,
                  "a resumed run says what its recipe changes")
    changed = harness.run(*runs.command("learned", 47, f"exec {reward}", "--resume"))
    harness.check(re.search(r"the reward has changed: '.*' before, 'exec .*' now", changed.stderr),
                  "and that its reward is another one")


def main():
    runs = Runs(*sys.argv[1:3])
    whole = check_learning(runs)
    check_kills(runs, whole)
    check_workers(runs, whole)
    check_server(runs, whole)
    check_stale_kill(runs)
    check_variants(runs)
    check_prompts(runs)
    check_gates(runs)
    check_memory(runs)
    check_recurrent(runs)
    check_errors(runs)


if __name__ == "__main__":
    main()
