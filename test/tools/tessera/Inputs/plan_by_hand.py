"""The flags of tessera compile that say what a plan file says; and whether the
dump of its compilation has the arena that the file says.

    plan_by_hand.py PLAN DUMP
"""
import re
import sys

text = open(sys.argv[1]).read()
plan = {key: value.split("#")[0].strip().strip("'") for key, value in
        re.findall(r"^ *(\w+): (.*)$", text, re.M)}
axes = re.findall(r"(\w+): (\d+)", plan["mesh"])
mesh = ",".join(f"{axis}={size}" for axis, size in axes) + f",zero={plan['zero']}"
if ("pipe", "1") not in axes:
    mesh += f",schedule={plan['schedule']},chunks={plan['chunks']}"
else:
    mesh = mesh.replace("pipe=1,", "")
mesh = ",".join(part for part in mesh.split(",")
                if part not in [f"{axis}=1" for axis, _ in axes])
if "expert_tensor" in plan:
    mesh += f",expert_tensor={plan['expert_tensor']}"
words = ["--mesh", mesh, "--target", plan["target"]]
for key, name in [("micro", "batch.micro"), ("accumulate", "batch.accumulate"),
                  ("sequence", "batch.sequence"), ("recompute", "recompute"),
                  ("precision", "precision.compute")]:
    words += ["--set", f"{name}={plan[key]}"]
print(*words)
arenas = {name: int(size) for name, size in
          re.findall(r"plan.program @(\w+) arena (\d+)", open(sys.argv[2]).read())}
arena = max(arenas[name] for name in ("init", "train_step", "eval_step"))
assert arena == int(plan["arena_bytes"]), (arenas, plan["arena_bytes"])
