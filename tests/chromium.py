"""A headless Chromium driven over a pipe by the DevTools protocol: no driver, no dependency."""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

#: Names of the browser on the path; the first is Debian's.
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
MISSING = (
    "no Chromium: apt-get install -y chromium (Debian, Ubuntu), or set CHROMIUM to its program"
)
FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
]


def program():
    """Return the browser's program, None if there is none."""
    given = os.environ.get("CHROMIUM")
    return given or next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """A browser process; ``page`` opens files in tabs of it."""

    def __init__(self):
        # the browser reads descriptor 3 and writes descriptor 4
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 10) for fd in (theirs_in, theirs_out)]
        os.close(theirs_in)
        os.close(theirs_out)
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.process = subprocess.Popen(
            [program(), *FLAGS, f"--user-data-dir={self.folder.name}", "about:blank"],
            preexec_fn=lambda: (os.dup2(theirs[0], 3), os.dup2(theirs[1], 4)),
            pass_fds=(3, 4),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for fd in theirs:
            os.close(fd)
        self.reader, self.writer = ours_in, ours_out
        self.buffer, self.number, self.events = b"", 0, []

    def send(self, method, session=None, **params):
        """Call a method of the protocol and return its result; events are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.writer, json.dumps(message).encode() + b"\0")
        while True:
            found = self._read()
            if found.get("id") == self.number:
                assert "error" not in found, f"{method}: {found['error']}"
                return found["result"]
            self.events.append(found)

    def drain(self, seconds=0.3):
        """Read what arrives within some time, and return all events so far."""
        end = time.monotonic() + seconds
        while (rest := end - time.monotonic()) > 0:
            if b"\0" in self.buffer or select.select([self.reader], [], [], rest)[0]:
                self.events.append(self._read())
        return self.events

    def _read(self, limit=60):
        while b"\0" not in self.buffer:
            assert select.select([self.reader], [], [], limit)[0], "the browser is silent"
            chunk = os.read(self.reader, 1 << 20)
            assert chunk, "the browser has gone"
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def page(self, file, **options):
        """Open a file and wait until it is loaded."""
        return Page(self, file, **options)

    def close(self):
        """End the browser."""
        self.send("Browser.close")
        self.process.wait(30)
        os.close(self.reader)
        os.close(self.writer)
        self.folder.cleanup()


class Page:
    """A file in a tab, with what it logged and asked of the network."""

    def __init__(self, browser, file, *, width=1280, height=900, dark=False, scripts=True):
        self.browser = browser
        target = browser.send("Target.createTarget", url="about:blank")["targetId"]
        found = browser.send("Target.attachToTarget", targetId=target, flatten=True)
        self.session, self.target = found["sessionId"], target
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.media(dark=dark)
        if not scripts:
            self.send("Emulation.setScriptExecutionDisabled", value=True)
        self.url = Path(file).resolve().as_uri()
        start = time.monotonic()
        self.send("Page.navigate", url=self.url)
        while not any(e["method"] == "Page.loadEventFired" for e in self.own_events(0.02)):
            assert time.monotonic() - start < 30, "the page does not load"
        self.seconds = time.monotonic() - start

    def send(self, method, **params):
        """Call a method in this tab."""
        return self.browser.send(method, self.session, **params)

    def own_events(self, seconds=0.2):
        """Return the events of this tab so far."""
        return [e for e in self.browser.drain(seconds) if e.get("sessionId") == self.session]

    def media(self, *, kind="", dark=False):
        """Show the page on another medium, or dark; nothing scrolls slowly."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.send("Emulation.setEmulatedMedia", media=kind, features=[scheme, still])

    def value(self, expression):
        """Return the value of an expression in the page."""
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def text(self, id_):
        """Return the text of an element."""
        return self.value(f"document.getElementById({json.dumps(id_)}).textContent")

    def key(self, key, times=1):
        """Press a key."""
        codes = {"ArrowRight": 39, "ArrowLeft": 37, "Home": 36, "End": 35, "Tab": 9, "Escape": 27}
        stroke = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        for _ in range(times):
            self.send("Input.dispatchKeyEvent", type="keyDown", **stroke)
            self.send("Input.dispatchKeyEvent", type="keyUp", **stroke)

    def errors(self):
        """Return what the page complained of: exceptions, errors of the console and the log."""
        found = []
        for event in self.own_events():
            params = event["params"]
            if event["method"] == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"]["text"])
            elif event["method"] == "Runtime.consoleAPICalled":
                found.append(f"{params['type']}: {params['args']}")
            elif event["method"] == "Log.entryAdded":
                found.append(params["entry"]["text"])
        return found

    def requests(self):
        """Return the addresses that the page asked for, beside itself and data in it."""
        asked = [
            e["params"]["request"]["url"]
            for e in self.own_events()
            if e["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in asked if url != self.url and not url.startswith("data:")]

    def screenshot(self, path, whole=True):
        """Save what is seen, or the whole page, as PNG."""
        clip = self._clip(whole)
        found = self.send("Page.captureScreenshot", captureBeyondViewport=whole, **clip)
        Path(path).write_bytes(base64.b64decode(found["data"]))

    def _clip(self, whole):
        if not whole:
            return {}
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        return {"clip": {**size, "scale": 1}}

    def pdf(self):
        """Return the printed page."""
        found = self.send("Page.printToPDF", printBackground=False, preferCSSPageSize=True)
        return base64.b64decode(found["data"])

    def close(self):
        """Close the tab."""
        self.browser.send("Target.closeTarget", targetId=self.target)
