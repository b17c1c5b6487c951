"""A TensorBoard event file, read by TensorBoard, has the numbers of metrics.jsonl.
   event_file.py METRICS.jsonl DIR"""
import json
import pathlib
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

metrics, folder = map(pathlib.Path, sys.argv[1:])
read = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
found = {tag: [(each.step, each.value) for each in read.Scalars(tag)] for tag in read.Tags()["scalars"]}
times = [each.wall_time for each in read.Scalars("train/loss")]

expected = {}
for line in metrics.read_text().splitlines():
    record = json.loads(line)
    for key, value in record.items():
        if key == "router":
            for name, layers in value.items():
                for layer, number in enumerate(layers):
                    expected.setdefault(f"router/{name}/{layer}", []).append((record["step"], number))
        elif key != "step":
            tag = "eval/loss" if key == "eval_loss" else f"train/{key}"
            expected.setdefault(tag, []).append((record["step"], value))

assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
for tag, rows in expected.items():
    assert [step for step, _ in rows] == [step for step, _ in found[tag]], tag
    assert all(abs(a - b) <= 1e-6 * abs(a) for (_, a), (_, b) in zip(rows, found[tag])), tag
assert times == sorted(times)
print(f"ok: {len(found)} scalars, {sum(map(len, found.values()))} numbers")
