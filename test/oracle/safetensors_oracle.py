#!/usr/bin/env python3
"""Compares our safetensors reader with the reference on generated files.

usage: safetensors_oracle.py CHECKER [CASES [SEED]]

CHECKER is the built bin/safetensors-check. Every case must be accepted by
both or by neither, and give the same names, types, shapes and sizes. Files are
small valid ones, with mutations of the JSON (tokens swapped for hostile ones)
and of the bytes. Where `safetensors` is not installed, prints so and exits 0.
"""
import random
import struct
import subprocess
import sys

try:
    import safetensors
except ImportError:
    print("SKIP: python package `safetensors` is not installed")
    sys.exit(0)

TYPES = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8,
         "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
         "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
         "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64,
         "U64": 64}
FRAGMENTS = ["null", "true", "-0", "-1", "0.0", "1e0", "1e400", "1e-400", "01",
             "18446744073709551615", "18446744073709551616", "[]", "{}",
             '"F32"', '"f32"', '{"F32":null}', '{"F32":{}}', '{"F32":[]}',
             '{"F32":0}', '{"F32":null,"F32":null}', '["F32",[1],[0,4]]',
             '["F32",[1],[0,4],1]', '["F32",[1]]', '"\\ud800"', '"\\udc00"',
             '"\\ud83d\\ude00"', '"\\u0000"', '"\t"', '"\\x"', '"a', "[0,4,]",
             "[0,4,8]", '{"__metadata__":1}', '{"a":"b","a":"c"}', "NaN",
             "[" * 126 + "]" * 126, "[" * 125 + "]" * 125,
             "[" * 124 + "]" * 124, '{"a":' * 60 + "1" + "}" * 60, "1.5",
             "/**/", "'a'", "\u00e9", "4", "8", "0", "2", "1"]


def entry(rng, offset):
    kind = rng.choice(list(TYPES)) if rng.random() < 0.5 else "F32"
    shape = [rng.choice([0, 1, 2, 3, 4, 8]) for _ in range(rng.randrange(4))]
    bits = TYPES[kind]
    for dim in shape:
        bits *= dim
    size = bits // 8
    fields = [f'"dtype":"{kind}"', f'"shape":{shape}'.replace(" ", ""),
              f'"data_offsets":[{offset},{offset + size}]']
    if rng.random() < 0.1:
        at = rng.randrange(3)
        fields[at] = fields[at].split(":")[0] + ":" + rng.choice(FRAGMENTS)
    if rng.random() < 0.3:
        rng.shuffle(fields)
    if rng.random() < 0.1:
        fields.append(f'"{rng.choice(["x", "shape", "dtype", "__metadata__"])}":'
                      + rng.choice(FRAGMENTS))
    if rng.random() < 0.03:
        fields.pop(rng.randrange(len(fields)))
    text = "{" + ",".join(fields) + "}"
    if rng.random() < 0.1:
        text = (f'["{kind}",{shape},[{offset},{offset + size}]]')
    return text, offset + size


def case(rng):
    items, offset = [], 0
    for _ in range(rng.randrange(4)):
        text, offset = entry(rng, offset)
        name = rng.choice(["a", "b", "c", "", "\u00e9", "a.b", "\\u0061"])
        items.append(f'"{name}":{text}')
    if rng.random() < 0.3:
        items.append('"__metadata__":' + rng.choice(
            ['{"k":"v"}', "null", "{}", '{"k":1}', '"x"', "[]", '{"k":null}',
             '{"k":"v","k":"w"}']))
    if rng.random() < 0.5:
        rng.shuffle(items)
    header = rng.choice(["", "", "", " ", "\n", "\ufeff"]) * (
        rng.random() < 0.1) + "{" + ",".join(items) + "}" + " " * rng.choice([0, 0, 1, 7])
    if rng.random() < 0.4 and len(header) > 2:
        # Replace one token or insert a fragment.
        at = rng.randrange(len(header))
        end = at + rng.choice([0, 0, 1, 1, 3, 5])
        header = header[:at] + rng.choice(FRAGMENTS) + header[end:]
    body = header.encode("utf-8", "surrogatepass")
    if rng.random() < 0.2:
        raw = bytearray(body)
        for _ in range(rng.choice([1, 1, 2])):
            if raw:
                raw[rng.randrange(len(raw))] = rng.choice(
                    [0, 0x20, 0x22, 0x2C, 0x7B, 0x7D, 0x80, 0xC0, 0xED, 0xFF,
                     rng.randrange(256)])
        body = bytes(raw)
    length = len(body)
    if rng.random() < 0.05:
        length = rng.choice([0, length + 1, max(0, length - 1), 100_000_000,
                             100_000_001, 1 << 63, (1 << 64) - 1])
    offset += rng.choice([0] * 12 + [1, -1, 8])
    data = struct.pack("<Q", length) + body + bytes(max(0, offset))
    if rng.random() < 0.03:
        data = data[:rng.randrange(len(data) + 1)]
    return data


def reference(data):
    try:
        tensors = safetensors.deserialize(data)
    except BaseException as error:  # the binding raises its own base class
        if isinstance(error, KeyboardInterrupt):
            raise
        return "no " + str(error)
    parts = sorted((name.encode("utf-8", "surrogatepass"), info)
                   for name, info in tensors)
    return "ok" + "".join(
        f" {name.hex()}:{info['dtype']}:{','.join(map(str, info['shape']))}:"
        f"{len(info['data'])}" for name, info in parts)


def main():
    checker = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    rng = random.Random(seed)
    cases = [case(rng) for _ in range(count)]
    stream = b"".join(struct.pack("<Q", len(c)) + c for c in cases)
    ours = subprocess.run([checker], input=stream, stdout=subprocess.PIPE,
                          check=True).stdout.decode().splitlines()
    assert len(ours) == count, (len(ours), count)
    accepted = bad = 0
    for data, mine in zip(cases, ours):
        theirs = reference(data)
        accepted += theirs.startswith("ok")
        same = mine == theirs if theirs.startswith("ok") else mine.startswith("no")
        if not same:
            bad += 1
            if bad <= 20:
                print(f"mismatch on {data!r}\n  reference: {theirs}\n  ours: {mine}")
    print(f"{count} cases, {accepted} accepted by the reference, {bad} mismatches "
          f"(safetensors {safetensors.__version__}, seed {seed})")
    sys.exit(bad != 0)


main()
