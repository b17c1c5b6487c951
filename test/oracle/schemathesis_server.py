"""Requests that schemathesis makes of /openapi.json: none ends the server or is
answered 5xx, and answers, refusals and content types are those described.
   schemathesis_server.py SERVE-CHECK [EXAMPLES]"""

import pathlib
import subprocess
import sys
import tempfile

import jsonschema

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
        assert f'http_responses_total{{code="{status}"}}' in statuses, statuses  # it tried
    assert 'http_responses_total{code="5' not in statuses, statuses


def check_stored(server):
    """Schemathesis guesses no ids: answers about what is stored, against what describes them."""
    described = server.call("GET", "/openapi.json")[2]
    seen = set()

    def ask(method, path, template, body=None):
        status, headers, answer = server.call(method, path, body)
        described_answer = described["paths"][template][method.lower()]["responses"][str(status)]
        schema = described_answer["content"]["application/json"]["schema"]
        jsonschema.Draft202012Validator(schema | {"components": described["components"]}).validate(answer)
        seen.add((template, method, status))
        return answer

    chats, responses = "/v1/chat/completions", "/v1/responses"
    talk = {"model": "fake", "messages": [{"role": "user", "content": "a"}], "max_tokens": 2, "store": True, "metadata": {"a": "b"}}
    chat = ask("POST", chats, chats, talk)["id"]
    stored = chats + "/{completion_id}"
    ask("GET", f"{chats}?limit=1&metadata[a]=b", chats)
    ask("GET", f"{chats}?limit=1&model=x", chats)
    ask("GET", f"{chats}?after=x", chats)
    ask("GET", f"{chats}/{chat}", stored)
    ask("POST", f"{chats}/{chat}", stored, {"metadata": {"c": "d"}})
    ask("POST", f"{chats}/{chat}", stored, {"metadata": 3})
    ask("GET", f"{chats}/{chat}/messages", stored + "/messages")
    asked = {"model": "fake", "input": "a", "max_output_tokens": 2}
    stored_response = responses + "/{response_id}"
    later = ask("POST", responses, responses, asked | {"background": True})["id"]
    ask("GET", f"{responses}/{later}", stored_response)
    ask("POST", f"{responses}/{later}/cancel", stored_response + "/cancel")
    response = ask("POST", responses, responses, asked | {"previous_response_id": ask("POST", responses, responses, asked)["id"]})["id"]
    ask("POST", f"{responses}/{response}/cancel", stored_response + "/cancel")
    ask("GET", f"{responses}/{response}?stream=false", stored_response)
    ask("GET", f"{responses}/{response}?stream=x", stored_response)
    ask("GET", f"{responses}/{response}/input_items?order=asc", stored_response + "/input_items")
    for _ in range(2):  # it is there, it is not
        ask("DELETE", f"{responses}/{response}", stored_response)
        ask("DELETE", f"{chats}/{chat}", stored)
    every = {(path, method.upper()) for path, methods in described["paths"].items() for method in methods if "_id}" in path}
    assert every <= {(path, method) for path, method, status in seen if status == 200}, every


def main():
    examples = sys.argv[2] if len(sys.argv) > 2 else "15"
    with Server([sys.argv[1]]) as server:
        check_stored(server)
        search(server, examples)
        assert server.metric("kv_pages_used") == 0
    with Server([sys.argv[1], "--embeds", "1"]) as server:
        search(server, examples)
    print("ok: no 5xx, nothing undescribed")


main()
