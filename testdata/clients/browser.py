"""Takes a headless Chromium through the steps of a plan, and fails when a page is not as expected or the browser complains.

    browser.py < PLAN

PLAN is a list of steps in JSON, each an object with one field:

    {"go": URL}                            loads a page
    {"fill": [SELECTOR, TEXT]}             writes into a field
    {"click": SELECTOR}                    presses a button or a link, and waits for the page behind it
    {"expect": EXPRESSION}                 is true on the page
    {"look": {"width": N, "dark": BOOL}}   from here on
    {"shot": FILE}                         saves a picture of the whole page
    {"top": [FILE, N]}                     saves a picture of its first N pixels

It talks to the browser over a pipe and needs nothing but Python's own library.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    # The certificate of a test is of an authority that nobody knows.
    "--ignore-certificate-errors",
    "--remote-debugging-pipe",
]

# What becomes of a page in this time, in seconds, is waited for.
DEADLINE = 60


class Browser:
    """One browser with one page."""

    def __init__(self, program, folder):
        to_browser, self._to = os.pipe()
        self._from, from_browser = os.pipe()

        def hand_over():
            # The numbers that the browser knows the pipe by.
            os.dup2(to_browser, 30)
            os.dup2(from_browser, 40)
            os.dup2(30, 3)
            os.dup2(40, 4)

        self._process = subprocess.Popen(
            [program, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=hand_over,
            close_fds=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._rest = b""
        self._number = 0
        self._session = None
        self._width = 1280
        self._loads = 0
        self.complaints = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.look({})

    def _message(self):
        while b"\0" not in self._rest:
            piece = os.read(self._from, 1 << 16)
            if not piece:
                raise SystemExit("the browser has gone")
            self._rest += piece
        line, self._rest = self._rest.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, **params):
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise SystemExit(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _note(self, event):
        method, params = event.get("method"), event.get("params", {})
        if method == "Page.loadEventFired":
            self._loads += 1
        elif method == "Log.entryAdded":
            entry = params["entry"]
            # That an address is answered with an error is for the plan to say.
            if entry["source"] != "network" and entry["level"] in ("warning", "error"):
                self.complaints.append(entry["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(params["exceptionDetails"]["text"])
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(json.dumps(params["args"]))

    def _until_loaded(self, before):
        while self._loads == before:
            self._note(self._message())

    def go(self, url):
        before = self._loads
        result = self.call("Page.navigate", url=url)
        if "errorText" in result:
            raise SystemExit(f"{url}: {result['errorText']}")
        self._until_loaded(before)

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise SystemExit(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def fill(self, field):
        selector, text = map(json.dumps, field)
        self.value(f"document.querySelector({selector}).value = {text}")

    def click(self, selector):
        before = self._loads
        self.value(f"document.querySelector({json.dumps(selector)}).click()")
        self._until_loaded(before)

    def expect(self, expression):
        if self.value(expression) is not True:
            text = self.value("document.body.innerText")
            raise SystemExit(f"not so: {expression}\n{self.value('location.href')}\n{text}")

    def look(self, how):
        self._width = how.get("width", 1280)
        scheme = "dark" if how.get("dark") else "light"
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=self._width,
            height=800,
            deviceScaleFactor=1,
            mobile=False,
        )
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.call("Emulation.setEmulatedMedia", features=[feature])

    def shot(self, path):
        self.top([path, self.call("Page.getLayoutMetrics")["cssContentSize"]["height"]])

    def top(self, picture):
        path, height = picture
        clip = {"x": 0, "y": 0, "width": self._width, "height": height, "scale": 1}
        picture = self.call("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        with open(path, "wb") as file:
            file.write(base64.b64decode(picture["data"]))

    def close(self):
        self._process.kill()
        self._process.wait()


def main():
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        raise SystemExit("no chromium: apt-get install chromium")
    steps = json.load(sys.stdin)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        browser = Browser(program, folder)
        try:
            signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"no page within {DEADLINE} s"))
            for step in steps:
                signal.alarm(DEADLINE)
                ((name, value),) = step.items()
                getattr(browser, name)(value)
            signal.alarm(0)
        finally:
            browser.close()
    if browser.complaints:
        raise SystemExit("the browser complains: " + "\n".join(browser.complaints))


if __name__ == "__main__":
    main()
