"""A plugin of pytest: writes what each test asked a server and how it was
answered, a line of JSON a test, to the file OPENAI_RECORD."""
import json
import os

import httpx

calls = []


def note(request, response):
    call = {"method": request.method, "path": request.url.path,
            "status": response.status_code, "error": {}}
    if request.headers.get("content-type") == "application/json":
        call["body"] = json.loads(request.content or b"null")
    if response.status_code >= 400:
        call["error"] = json.loads(response.content)["error"]
    calls.append(call)


def patch():
    send, send_later = httpx.Client.send, httpx.AsyncClient.send

    def recorded(self, request, **options):
        response = send(self, request, **options)
        if response.status_code >= 400:
            response.read()
        note(request, response)
        return response

    async def recorded_later(self, request, **options):
        response = await send_later(self, request, **options)
        if response.status_code >= 400:
            await response.aread()
        note(request, response)
        return response
    httpx.Client.send, httpx.AsyncClient.send = recorded, recorded_later


patch()


def pytest_runtest_setup(item):
    calls.clear()


def pytest_runtest_logreport(report):
    if report.when != "call" and report.outcome == "passed":
        return
    with open(os.environ["OPENAI_RECORD"], "a", encoding="utf-8") as file:
        print(json.dumps({"test": report.nodeid, "outcome": report.outcome,
                          "calls": calls, "text": report.longreprtext[-9000:]}),
              file=file)
