"""Hosts by name. The server is on this machine's loopback, which a rule for addresses allows."""

from __future__ import annotations

import http.server
import io
import os
import threading
import zipfile
from collections.abc import Iterator

import pytest

import stockade

GET = """
import sys, urllib.request
for url in sys.argv[1:]:
    try: print(urllib.request.urlopen(url, timeout=10).read().decode())
    except Exception as error: print("refused:", error)
"""


@pytest.fixture
def server() -> Iterator[int]:
    class Hello(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"hello from " + (self.headers["Host"] or "").encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        yield serving.server_address[1]
        serving.shutdown()


def test_a_run_reaches_what_is_allowed_and_logs_it(server: int) -> None:
    result = stockade.run(
        ["python3", "-c", GET, f"http://api.example.com:{server}/", f"http://other.example.org:{server}/"],
        allow_net=[f"api.example.com:{server}", f"127.0.0.1:{server}"],
        add_hosts={"api.example.com": "127.0.0.1"},
    )
    lines = result.stdout.splitlines()
    assert lines[0] == f"hello from api.example.com:{server}" and lines[1].startswith("refused:"), result
    assert result.net_log is not None
    reached = [event for event in result.net_log if event.name == "api.example.com" and event.event == "connection"]
    assert reached and reached[0].port == server and reached[0].bytes_received > 0 and reached[0].rule
    refused = [event for event in result.net_log if event.name == "other.example.org"]
    assert refused and refused[0].reason
    assert result.report["network"]["egress"]["connections"] == 1
    assert stockade.run(["true"]).net_log is None


def test_the_hosts_of_a_sandbox_change(server: int) -> None:
    url = f"http://api.example.com:{server}/"
    options = {"add_hosts": {"api.example.com": "127.0.0.1"}, "allow_net": [f"127.0.0.1:{server}"]}
    with stockade.Sandbox(**options) as sandbox:  # type: ignore[arg-type]
        assert "refused" in sandbox.commands.run(["python3", "-c", GET, url]).stdout
        sandbox.allow_net(f"api.example.com:{server}")
        assert "hello" in sandbox.commands.run(["python3", "-c", GET, url]).stdout
        sandbox.deny_net(f"api.example.com:{server}")
        assert "refused" in sandbox.commands.run(["python3", "-c", GET, url]).stdout
        log = sandbox.net_log()
        assert any(event.name == "api.example.com" and event.rule and event.bytes_received for event in log)


@pytest.mark.skipif(not os.path.exists("/usr/bin/pip"), reason="the system's Python has no pip")
def test_the_pip_of_a_distribution_installs_in_a_sandbox() -> None:
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny.py", "said = 'hello from pip'\n")
        archive.writestr("tiny-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        archive.writestr("tiny-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    with stockade.Sandbox() as sandbox:
        sandbox.files.write("tiny-1.0-py3-none-any.whl", wheel.getvalue())
        sandbox.commands.run("/usr/bin/python3 -m pip install -q --no-index ./tiny-1.0-py3-none-any.whl", timeout=100)
        assert sandbox.run_code("import tiny; tiny.said").text == "'hello from pip'"
    with stockade.Sandbox(envs={"PIP_BREAK_SYSTEM_PACKAGES": "0"}) as sandbox:
        assert sandbox.commands.run("echo $PIP_BREAK_SYSTEM_PACKAGES").stdout == "0\n"
