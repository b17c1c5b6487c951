"""Between the openai client's own tests and the server: they ask for answers
under ids that nobody was ever given, such as "response_id", which a mock takes.
For every such request an answer is made through the API, and the request goes
on with the id of that answer in place of the one in the test. Nothing else of
it is changed, and the server's answer comes back as it is.
"""
import http.client
import http.server
import json
import re
import threading
import urllib.parse

# What stands in the tests' paths.
RESPONSE = re.compile(r"(/responses/)(?:response_id|resp_677efb5139a88190b512bc3fef8e535d)(?=/|\?|$)")
CHAT = re.compile(r"(/chat/completions/)completion_id(?=/|\?|$)")
AFTER = re.compile(r"(?<=[?&]after=)after(?=&|$)")
OWN = {"host", "content-length", "connection", "transfer-encoding"}
# The client's type of a stored message knows no other role than this one.
SAID = [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]


class Proxy:
    """In front of a server on this machine, at `port`; stopped at the end of
    `with`. `made` counts the answers that it asked for."""

    def __init__(self, port, model):
        self.to, self.model, self.made = port, model, 0
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                path = proxy.path(self.command, self.path)
                answer, text = proxy.ask(self.command, path, body, dict(self.headers))
                self.send_response_only(answer.status, answer.reason)
                for name, value in answer.getheaders():
                    if name.lower() not in OWN:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_DELETE = handle_one

            def log_message(self, *_):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass  # clients close what they have seen enough of

        self.server = Quiet(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.to, timeout=60)
        connection.request(method, path, body, {
            name: value for name, value in (headers or {}).items() if name.lower() not in OWN})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer, text

    def make(self, path, **fields):
        self.made += 1
        answer, text = self.ask("POST", path, json.dumps({"model": self.model, "store": True, **fields}))
        assert answer.status == 200, text
        return json.loads(text)["id"]

    def make_chat(self):
        return self.make("/v1/chat/completions", messages=SAID, max_tokens=3)

    def path(self, method, path):
        """With ids of answers that there are."""
        if RESPONSE.search(path):
            # Only what is made in the background can be cancelled.
            wanted = {"background": True} if path.endswith("/cancel") else {}
            made = self.make("/v1/responses", input="hello", max_output_tokens=3, **wanted)
            path = RESPONSE.sub(rf"\g<1>{made}", path)
        elif CHAT.search(path):
            path = CHAT.sub(rf"\g<1>{self.make_chat()}", path)
        if not AFTER.search(path):
            return path
        listed = path.split("?")[0]
        if listed.endswith("/chat/completions"):
            self.make_chat()
        items = json.loads(self.ask("GET", listed)[1])["data"]
        return AFTER.sub(urllib.parse.quote(items[0]["id"]), path)
