"""`tessera bench serve` against the server over a model of hashes.
   bench.py BIN"""

import json
import pathlib
import subprocess
import sys
import time

from serving import Server

BIN = pathlib.Path(sys.argv[1])


def bench(server, *options):
    command = [BIN / "tessera", "bench", "serve", f"http://127.0.0.1:{server.port}/v1", *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True)


def main():
    with Server([BIN / "serve-check", "--slow", "200", "--key", "secret"]) as server:
        headers = {"Authorization": "Bearer secret"}

        def generated():
            text = server.call("GET", "/metrics", headers=headers)[2]
            return int(text.split("\ntessera:generation_tokens_total ")[1].split("\n")[0])

        for options, name in (((), "completions"), (("--chat", "--rate", 200), "chats at a rate")):
            before = generated()
            run = bench(server, "--num", 20, "--concurrency", 4, "--max-tokens", 24, "--words", 8,
                        "--api-key", "secret", "--json", *options)
            assert run.returncode == 0, run.stderr
            figures = json.loads(run.stdout)
            assert (figures["completed"], figures["failed"], figures["model_id"]) == (20, 0, "fake"), figures
            assert figures["total_output_tokens"] == 20 * 24, figures
            for _ in range(100):  # the engine tells after an iteration what was in it
                if generated() - before == 20 * 24:
                    break
                time.sleep(0.05)
            assert generated() - before == 20 * 24
            assert figures["total_input_tokens"] > 20 * 8, figures
            assert figures["request_rate"] == (200 if options else "inf")
            assert abs(figures["request_throughput"] * figures["duration"] - 20) < 1e-6
            for metric in ("ttft", "tpot", "itl", "e2el"):
                mean, median, p95, p99 = (figures[f"{kind}_{metric}_ms"] for kind in ("mean", "median", "p95", "p99"))
                assert 0 <= median <= p95 <= p99 and mean <= 20 * p99 + 1e-9, figures
            assert figures["median_ttft_ms"] <= figures["median_e2el_ms"]
            # 23 tokens come one by one, 0.2 ms apart at least.
            assert figures["mean_tpot_ms"] >= 0.2, figures
            print(f"ok: {name}")

        table = bench(server, "--num", 2, "--max-tokens", 2, "--api-key", "secret")
        assert table.returncode == 0 and "Time to first token" in table.stdout, table
        for options, message in (
            (("--num", 1), "/v1/models answers 401"),
            (("--num", 3, "--model", "other", "--api-key", "secret"), "3 of 3 requests failed, the first with: 404"),
            (("--num", 1, "--max-tokens", 5000, "--api-key", "secret"), "1 of 1 requests failed, the first with: 400: the prompt has "),
        ):
            run = bench(server, *options)
            assert run.returncode == 1 and message in run.stderr, run
    run = bench(server, "--num", 1)
    assert run.returncode == 1 and "cannot connect to 127.0.0.1" in run.stderr, run
    for url in ("https://x", "http://", "http://a:b"):
        run = subprocess.run([BIN / "tessera", "bench", "serve", url], capture_output=True, text=True)
        assert run.returncode == 1 and "the server must be http://HOST:PORT" in run.stderr, run
    print("ok: errors")


main()
