"""Who may ask the server and for what; what its pages may do. Each rule is broken once, and what is allowed works."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.unit.store.make_run import make_run
from tests.web import driver
from tests.web.subjects import Explorer

SECRET = "what no page may read"


def ask(address: str, path: str = "/api", method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    parts = urlsplit(address)
    connection = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return found


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_its_own_names_are_answered(explorer: Explorer, host: str) -> None:
    port = urlsplit(explorer.address).port
    assert ask(explorer.address, Host=f"{host}:{port}")[0] == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:5000", "localhost.evil.example", "", "127.0.0.1.evil"])
def test_a_foreign_host_is_refused(explorer: Explorer, host: str) -> None:
    status, _, body = ask(explorer.address, Host=host)
    assert status == 421
    assert b"does not answer to the host" in body
    assert b"Lab" not in body


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:1", "file://"])
def test_a_foreign_origin_is_refused(explorer: Explorer, origin: str) -> None:
    status, _, body = ask(explorer.address, Origin=origin)
    assert status == 403
    assert b"may not ask this server" in body


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_requests_of_other_sites_are_refused(explorer: Explorer, site: str) -> None:
    assert ask(explorer.address, Sec_Fetch_Site=site)[0] == 403
    assert ask(explorer.address, Sec_Fetch_Site="same-origin")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_it_only_shows(explorer: Explorer, method: str) -> None:
    assert ask(explorer.address, method=method)[0] == 405


def test_pages_may_only_run_its_code_and_ask_it(explorer: Explorer) -> None:
    for path in ("/", "/page.js", "/api", "/nothing"):
        _, headers, _ = ask(explorer.address, path)
        policy = headers["content-security-policy"]
        rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
        assert rules["default-src"] == "'none'"
        assert rules["script-src"] == rules["connect-src"] == rules["style-src"] == rules["worker-src"] == "'self'"
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in headers


@pytest.mark.page_errors
def test_the_browser_keeps_to_that(page: Page, explorer: Explorer) -> None:
    page.goto(explorer.address)
    driver.graph_of(page)
    ran = page.evaluate(
        """() => {
            const script = document.createElement('script');
            script.textContent = 'window.ran = true';
            document.body.append(script);
            return window.ran === true;
        }"""
    )
    assert not ran
    refused = page.evaluate("() => fetch('http://127.0.0.1:9/').then(() => 'asked', () => 'refused')")
    assert refused == "refused"


@pytest.mark.page_errors
def test_another_page_reads_nothing(page: Page, explorer: Explorer, tmp_path: Path) -> None:
    """A page from elsewhere in the same browser: it may ask, and gets nothing to read."""
    elsewhere = tmp_path / "elsewhere.html"
    elsewhere.write_text("<!doctype html><title>Elsewhere</title>", encoding="utf-8")
    page.goto(elsewhere.as_uri())
    read = page.evaluate(
        "(address) => fetch(address + 'api').then((answer) => answer.text(), (error) => 'nothing')", explorer.address
    )
    assert read == "nothing"


@pytest.mark.parametrize(
    "path",
    [
        "/../../secret.txt",
        "/..%2f..%2fsecret.txt",
        "/%2e%2e/secret.txt",
        "/page.js/../../secret.txt",
        "/api/subjects/../../secret.txt",
        "/api/subjects/0/details?value=../secret.txt",
        "/api/subjects/0?at=../../secret.txt",
        "//etc/passwd",
        "/etc/passwd",
        "/built/page.js",
    ],
)
def test_no_file_can_be_named(explorer: Explorer, tmp_path: Path, path: str) -> None:
    status, _, body = ask(explorer.address, path)
    assert status in (400, 404)
    assert SECRET.encode() not in body
    assert b"root:" not in body


@pytest.fixture(scope="module")
def bound_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    run = make_run(tmp_path_factory.mktemp("token") / "run", 5)
    command = [sys.executable, "-m", "torcheer.web", str(run), "--host", "0.0.0.0", "--port", "0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout
    with server.stdout:
        yield server.stdout.readline().strip()
    server.terminate()
    server.wait(timeout=10)


def test_bound_elsewhere_it_wants_its_token(bound_elsewhere: str) -> None:
    token = urlsplit(bound_elsewhere).query.removeprefix("token=")
    assert len(token) >= 32
    for path in ("/", "/api", "/page.js", "/api/events", "/api?token=", "/api?token=wrong"):
        status, _, body = ask(bound_elsewhere, path)
        assert status == 401, path
        assert b"A token is needed" in body
    assert ask(bound_elsewhere, Authorization=f"Bearer {token}")[0] == 200
    assert ask(bound_elsewhere, Cookie=f"torcheer_token={token}")[0] == 200
    assert ask(bound_elsewhere, Authorization="Bearer wrong")[0] == 401
    assert ask(bound_elsewhere, Host="evil.example", Authorization=f"Bearer {token}")[0] == 421


def test_the_token_leaves_the_address_at_once(page: Page, bound_elsewhere: str) -> None:
    page.goto(bound_elsewhere)
    expect(page.get_by_text("step 4")).to_be_visible()
    assert "token" not in page.url
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"


def test_it_listens_on_this_machine_only(explorer: Explorer) -> None:
    assert re.match(r"http://localhost:\d+/$", explorer.address)
    port = f"{urlsplit(explorer.address).port:04X}"
    listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    assert {line[1] for line in listening if line[1].endswith(f":{port}") and line[3] == "0A"} == {f"0100007F:{port}"}
