"""The swarm page of a real bootstrap peer with real volunteers, in a real Chromium.

`BT_PICTURE=FILE` also writes the picture of the documentation; `BT_NEED_CHROMIUM=1` makes it an error
that there is no Chromium.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from bt_p2p.protocol.manifest import RunManifest
from tests.e2e.conftest import (
    END_TIMEOUT_S,
    Programs,
    descendants,
    wait_until,
    write_tiny_manifest,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

START_TIMEOUT_S = 60.0
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--no-proxy-server", "--hide-scrollbars",
)  # fmt: skip
PICTURE = os.environ.get("BT_PICTURE", "")
NUM_POINTS = 10 if PICTURE else 2
"""Rounds to wait for on each curve."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """A Chromium that nobody has used."""
    programs = [shutil.which("chromium"), shutil.which("chromedriver")]
    if None in programs:
        text = "no chromium and chromedriver: apt-get install chromium chromium-driver"
        if os.environ.get("BT_NEED_CHROMIUM"):
            pytest.fail(text)
        pytest.skip(text)
    options = webdriver.ChromeOptions()
    options.binary_location, driver = programs
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    found = webdriver.Chrome(options=options, service=Service(driver))
    found.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 900, "height": 1000, "deviceScaleFactor": 1, "mobile": False},
    )
    yield found
    found.quit()


@pytest.fixture(scope="module")
def manifest(programs: Programs) -> RunManifest:
    """Three blocks, one more than there are volunteers."""
    model = {
        "num_blocks": 3, "layers_per_block": 1, "d_model": 32, "num_heads": 2, "context": 64,
    }  # fmt: skip
    return write_tiny_manifest(
        programs.folder / "manifest.json", name="tiny", model=model, rounds={"round_s": 3}
    )


@pytest.fixture(scope="module")
def bootstrap(programs: Programs, manifest: RunManifest) -> tuple[subprocess.Popen[bytes], str]:
    """A bootstrap peer with two volunteers, and the URL of its page."""
    process = programs.start(
        "bootstrap", "--manifest", "manifest.json", "--host", "127.0.0.1", "--port", "0",
        "--http-port", "0", log="bootstrap.log",
    )  # fmt: skip
    address = said(programs, process, "bootstrap.log", r"--initial-peers (\S+)")
    for block in ("0", "1"):
        programs.start(
            "node", "join", "--initial-peers", address, "--state-dir", str(programs.folder / block),
            "--block", block, "--host", "127.0.0.1", "--threads", "1", log=f"{block}.log",
        )  # fmt: skip
    return process, said(programs, process, "bootstrap.log", r"swarm page on (\S+)$")


def said(programs: Programs, process: subprocess.Popen[bytes], log: str, pattern: str) -> str:
    """What a program prints at its start."""

    def found() -> re.Match[str] | None:
        assert process.poll() is None, programs.text(log)
        return re.search(pattern, programs.text(log), flags=re.MULTILINE)

    wait_until(found, deadline_s=START_TIMEOUT_S, what=f"{pattern} in {log}")
    return str(found()[1])


def read(url: str) -> bytes:
    """What a path answers."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=10) as answer:
        return answer.read()


def texts(browser: webdriver.Chrome, selector: str) -> list[str]:
    """What a reader sees in some elements."""
    script = "return Array.from(document.querySelectorAll(arguments[0]), each => each.innerText)"
    return browser.execute_script(script, selector)


def press(browser: webdriver.Chrome, selector: str) -> bool:
    """Click an element, unless the page has just been made anew."""
    try:
        browser.find_element(By.CSS_SELECTOR, selector).click()
    except StaleElementReferenceException:
        return False
    return True


def clipboard(browser: webdriver.Chrome) -> str:
    """What would be pasted."""
    return browser.execute_async_script(
        "const done = arguments[0]; navigator.clipboard.readText().then(done, e => done(String(e)))"
    )


def hosts_asked(browser: webdriver.Chrome) -> set[str]:
    """Where the page sent requests."""
    messages = [json.loads(each["message"])["message"] for each in browser.get_log("performance")]
    urls = [
        message["params"]["request"]["url"]
        for message in messages
        if message["method"] == "Network.requestWillBeSent"
    ]
    return {urlsplit(url).netloc for url in urls if urlsplit(url).scheme in {"http", "https"}}


def test_a_visitor_sees_the_swarm_and_copies_the_line_to_join(
    browser: webdriver.Chrome,
    programs: Programs,
    manifest: RunManifest,
    bootstrap: tuple[subprocess.Popen[bytes], str],
) -> None:
    """One visit, from the first volunteer to the end of the bootstrap peer."""
    process, url = bootstrap
    browser.get(url)
    assert "tiny: the swarm" == browser.title

    # it fills by itself: two blocks with a holder and a curve, one without, and a warning
    def is_filled() -> bool:
        curves = browser.execute_script(
            "return Array.from(document.querySelectorAll('.curve polyline'), e => e.points.length)"
        )
        return len(curves) == 2 and min(curves) >= NUM_POINTS

    wait_until(is_filled, deadline_s=START_TIMEOUT_S, what="two curves on the page")
    states = texts(browser, "table.blocks td:last-child")
    assert ["one holder", "one holder", "no holder"] == states
    assert "Nobody holds block 2:" in texts(browser, ".warning")[0]
    document = json.loads(read(f"{url}api/v1/swarm"))
    peers = {peer["peer_id"][-6:] for peer in document["runs"][0]["peers"]}
    assert peers == {text[-6:] for text in texts(browser, "table.peers code")}
    holders = f'bt_block_holders{{block="2",run="{manifest.run_id}"}} 0.0'
    assert holders in read(f"{url}metrics").decode()
    if PICTURE:
        height = browser.execute_script("return document.documentElement.scrollHeight")
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": 900, "height": height, "deviceScaleFactor": 1, "mobile": False},
        )
        Path(PICTURE).write_bytes(browser.get_screenshot_as_png())

    # the button copies the line, also where a page has no clipboard of its own
    origin = url.rstrip("/")
    permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"]
    browser.execute_cdp_cmd(
        "Browser.grantPermissions", {"permissions": permissions, "origin": origin}
    )
    line = document["runs"][0]["join"][0]["command"]
    assert (
        line == f"bt-node join --run {manifest.run_id} --initial-peers {document['addresses'][0]}"
    )
    for prepare in ("", "navigator.clipboard.writeText = () => Promise.reject(new Error('no'))"):
        browser.execute_async_script(
            "navigator.clipboard.writeText('nothing').then(arguments[0], arguments[0])"
        )
        browser.execute_script(prepare)
        wait_until(
            lambda: texts(browser, "button.copy")[0] == "Copy", deadline_s=10, what="it is ready"
        )
        wait_until(lambda: press(browser, "button.copy"), deadline_s=10, what="it is pressed")
        wait_until(
            lambda: texts(browser, "button.copy")[0] == "Copied", deadline_s=10, what="it is copied"
        )
        assert line == clipboard(browser)

    # it fits on a phone, and is dark where the visitor's system is
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 375, "height": 700, "deviceScaleFactor": 1, "mobile": True},
    )
    assert 375 == browser.execute_script("return document.documentElement.scrollWidth")
    colours = []
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        script = "return getComputedStyle(document.body).backgroundColor"
        colours.append(browser.execute_script(script))
    assert ["rgb(255, 255, 255)", "rgb(20, 24, 29)"] == colours

    # no complaint of the browser, and nobody else was asked
    assert [] == browser.get_log("browser")
    assert {urlsplit(url).netloc} == hosts_asked(browser)

    # a volunteer tells its own figures, at the port that it printed
    node = said(programs, process, "0.log", r"metrics on (\S+)/metrics$")
    assert "ok" == json.loads(read(f"{node}/healthz"))["status"]
    assert re.search(r"^bt_node_steps_total [1-9]", read(f"{node}/metrics").decode(), re.MULTILINE)

    # when the peer ends, the page says that it is old, and nothing is left behind
    children = descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    assert 143 == process.wait(END_TIMEOUT_S)
    assert [] == psutil.wait_procs(children, timeout=END_TIMEOUT_S)[1]
    wait_until(
        lambda: "this server has not answered" in texts(browser, "#notice")[0],
        deadline_s=20,
        what="the page says that it is old",
    )
    assert 3 == len(texts(browser, "table.blocks tbody tr"))
    with socket.create_server(("127.0.0.1", urlsplit(url).port)):
        pass
