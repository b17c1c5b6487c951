"""What the data of a report page holds, compared with itself and its trace.
   data.py program PAGE TRACE | plan PAGE"""

import json
import re
import sys


def data_of(page):
    html = open(page, encoding="utf-8").read()
    assert not re.search(r'<link|src="|@import|https?://(?!www\.w3\.org)', html.split('<script type="application/json"')[0])
    block = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)[1]
    return json.loads(block)


def check_shards(sharding):
    """The regions of a tensor have all its elements, once for each copy."""
    for tensor in sharding["tensors"]:
        size, held = 1, 0
        for extent in tensor["shape"]:
            size *= extent
        for region in tensor["regions"]:
            part = 1
            for ranges in region["dims"]:
                part *= sum(count for _, count in ranges)
            held += part
        assert held == size, (tensor["name"], held, size)
    print(f"{sharding['ranks']} ranks hold all of each tensor")


def program(page, trace):
    data = data_of(page)
    programs = {one["name"]: one for one in data["programs"]}
    train = programs["train_step"]
    print("programs", ", ".join(programs))
    print("layers of train_step:", ", ".join(row["name"] for row in train["layers"]))
    shares = train["shares"]
    memory = shares[0]["memory"]
    uses = {memory["uses"][memory["buffers"]["use"][i]] for i in memory["peak"]["alive"]}
    assert memory["peak"]["bytes"] <= memory["arena"]
    print("uses at the peak:", ", ".join(sorted(uses, reverse=True)))
    measured = ["measured" in kernel for kernel in shares[0]["kernels"]]
    print("measured kernels:", "all" if all(measured) else f"{sum(measured)} of {len(measured)}")
    if "ir" in data:
        assert all(("diff" in phase) == (i > 0) for i, phase in enumerate(data["ir"]))
        print(f"phases: {len(data['ir'])}, each with a difference to the one before but the first")
    spans = sum(event["ph"] == "X" for event in json.load(open(trace))["traceEvents"])
    assert spans == sum(len(lane["events"]) for one in programs.values() for lane in one["timeline"]["lanes"])
    print("trace has the spans of the page")
    print("shares of train_step:", ", ".join(share["ranks"] for share in shares))
    if "schedule" in data:
        print(f"schedule {data['schedule']['name']}: {len(data['schedule']['lanes'])} ranks")
    if data["sharding"]:
        check_shards(data["sharding"])


def plan(page):
    data = data_of(page)
    assert data["chosen"] in data["names"]
    print(f"{len(data['names'])} plans, the chosen one among them")
    print("ruled out:", ", ".join(data["answer"]["search"]["ruled_out"]))
    print("degrees:", ", ".join(choice["degree"] for choice in data["choices"]))


{"program": program, "plan": plan}[sys.argv[1]](*sys.argv[2:])
