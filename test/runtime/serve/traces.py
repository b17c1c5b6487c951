"""Traces of requests, read by OpenTelemetry's own messages.   traces.py SERVE-CHECK"""

import base64
import http.server
import json
import os
import re
import sys
import threading

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from serving import Server, expect, made

CHECK = os.path.abspath(sys.argv[1])
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Collector(http.server.ThreadingHTTPServer):
    """Keeps what is sent to it; with `status` it refuses."""

    def __init__(self, status=200):
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.bodies, self.news = status, [], threading.Condition()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def spans(self, count):
        """All spans, once there are `count`."""
        with self.news:
            assert self.news.wait_for(lambda: sum(map(len, self.bodies)) >= count, 60), self.bodies
            return [span for body in self.bodies for span in body]


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        expect((self.path, self.headers["Content-Type"]), ("/v1/traces", "application/json"))
        # In OTLP's JSON ids are hexadecimal; in that of protobuf, base64.
        text = re.sub(r'"(\w+Id)":"([0-9a-f]+)"',
                      lambda found: f'"{found[1]}":"{base64.b64encode(bytes.fromhex(found[2])).decode()}"', text)
        request = json_format.Parse(text, ExportTraceServiceRequest())
        with self.server.news:
            self.server.bodies.append([span for one in request.resource_spans for scope in one.scope_spans
                                       for span in scope.spans])
            self.server.resources = [attributes(one.resource) for one in request.resource_spans]
            self.server.news.notify_all()
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def attributes(of):
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}


def serve(collector, *options):
    url = f"http://127.0.0.1:{collector.server_port}"
    return Server([CHECK, "--traces", url, *options], env={**os.environ, "OTEL_SERVICE_NAME": "shop"})


def chats():
    collector = Collector()
    with serve(collector) as server:
        body = {"model": server.model, "messages": [{"role": "user", "content": "hello"}], "n": 2, "max_tokens": 5,
                "temperature": 0.5}
        status, _, answer = server.call("POST", "/v1/chat/completions", body, {"traceparent": f"00-{TRACE}-{PARENT}-01"})
        expect(status, 200)
        spans = collector.spans(7)
        expect(collector.resources, [{"service.name": "shop", "service.version": "check"}])
        whole = spans[0]
        expect((whole.name, whole.kind, whole.trace_id.hex(), whole.parent_span_id.hex()),
               ("chat fake", Span.SPAN_KIND_SERVER, TRACE, PARENT))
        said = attributes(whole)
        expect([value.string_value for value in said.pop("gen_ai.response.finish_reasons").values],
               [choice["finish_reason"] for choice in answer["choices"]])
        usage = answer["usage"]
        expect(said, {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "tessera", "gen_ai.request.model": "fake",
                      "gen_ai.response.model": "fake", "gen_ai.response.id": answer["id"],
                      "gen_ai.request.max_tokens": 5, "gen_ai.request.temperature": 0.5, "gen_ai.request.top_p": 1.0,
                      "gen_ai.request.choice.count": 2, "gen_ai.usage.input_tokens": usage["prompt_tokens"],
                      "gen_ai.usage.output_tokens": usage["completion_tokens"],
                      "gen_ai.usage.cache_read.input_tokens": usage["prompt_tokens_details"]["cached_tokens"],
                      "http.response.status_code": 200})
        expect([span.name for span in spans[1:]], ["queue", "prefill", "decode"] * 2)
        for span in spans[1:]:
            expect((span.trace_id, span.parent_span_id), (whole.trace_id, whole.span_id))
            assert whole.start_time_unix_nano - 10**7 <= span.start_time_unix_nano <= span.end_time_unix_nano
            assert span.end_time_unix_nano <= whole.end_time_unix_nano + 10**7
        # A client that does not record its trace; then one without a trace.
        server.call("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1}, {"traceparent": f"00-{TRACE}-{PARENT}-00"})
        made(server.post("/v1/completions", prompt="a", max_tokens=1))
        other = collector.spans(11)[7]
        expect((other.name, other.parent_span_id), ("text_completion fake", b""))
        assert other.trace_id.hex() != TRACE and len(other.trace_id) == 16
    print("ok: chats")


def errors():
    collector = Collector()
    with serve(collector, "--slow", "200000", "--request-timeout", "1") as server:
        status, _ = server.post("/v1/completions", prompt="a", max_tokens=900)
        expect(status, 504)
        whole = collector.spans(1)[0]
        expect((whole.status.code, whole.status.message), (Status.STATUS_CODE_ERROR, "the request timed out"))
        expect(attributes(whole)["error.type"], "504")
    print("ok: errors")


def embeddings():
    collector = Collector()
    with serve(collector, "--embeds", "1") as server:
        made(server.post("/v1/embeddings", input=["ab", "cde"]))
        whole = collector.spans(1)[0]
        expect(whole.name, "embeddings fake")
        expect(attributes(whole)["gen_ai.usage.input_tokens"], 5)
    print("ok: embeddings")


def lost():
    """A collector that refuses, or is gone, delays no request, and the end of the server by little."""
    collector = Collector(status=503)
    with serve(collector) as server:
        made(server.post("/v1/completions", prompt="a", max_tokens=1))
        collector.spans(1)
        while server.metric("traces_dropped_total") < 1:
            pass
        collector.server_close()
        collector.shutdown()
        made(server.post("/v1/completions", prompt="a", max_tokens=1))
        server.terminate()
        expect(server.process.wait(60), 0)
        said = [line for line in server.log.read().split("\n") if "traces are dropped" in line]
        assert len(said) == 1 and "answers 503" in said[0], said
    print("ok: lost")


chats()
errors()
embeddings()
lost()
