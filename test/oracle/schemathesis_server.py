"""Requests that schemathesis makes of /openapi.json: none ends the server or is
answered 5xx, and answers, refusals and content types are those described.
   schemathesis_server.py SERVE-CHECK [EXAMPLES]"""

import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "runtime/serve"))
from serving import Server  # noqa: E402

# What a schema allows may still be too long for the context, or ask for
# top_logprobs without logprobs: no schema says that, so no 400 is a mistake.
LEFT_OUT = "positive_data_acceptance"


def search(server, examples):
    command = [sys.executable, "-c", "from schemathesis.cli import schemathesis; schemathesis()", "run"]
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [*command, f"http://127.0.0.1:{server.port}/openapi.json", "--checks", "all", "--exclude-checks", LEFT_OUT,
             "--max-examples", examples, "--seed", "1", "--generation-deterministic",
             "--phases", "examples,coverage,fuzzing", "--continue-on-failure", "--no-color"],
            cwd=folder, capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(run.stdout[-8000:] + run.stderr[-2000:])
    assert server.process.poll() is None, "the server has ended"
    assert server.call("GET", "/health")[0] == 200
    server.wait_until_idle()
    statuses = server.call("GET", "/metrics")[2]
    for status in ("200", "400", "404", "405"):
        assert f'http_responses{{code="{status}"}}' in statuses, statuses  # it tried
    assert 'http_responses{code="5' not in statuses, statuses


def main():
    examples = sys.argv[2] if len(sys.argv) > 2 else "15"
    with Server([sys.argv[1]]) as server:
        search(server, examples)
        assert server.metric("kv_pages_used") == 0
    with Server([sys.argv[1], "--embeds", "1"]) as server:
        search(server, examples)
    print("ok: no 5xx, nothing undescribed")


main()
