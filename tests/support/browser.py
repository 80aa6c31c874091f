# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium for tests, controlled over two pipes (--remote-debugging-pipe): JSON messages, each ended by a
zero byte. Input uses the browser's own mouse and key events, so a test does what a user does."""
import base64
import json
import os
import shutil
import subprocess
import tempfile


class Browser:
    def __init__(self, program, mine=("file:", "data:")):
        """Reports requests as problems, unless their address begins with one of `mine`."""
        self.mine = mine
        self.folder = tempfile.mkdtemp(prefix="sluice-chromium-")
        ours_out, theirs_in = os.pipe(), os.pipe()  # they write, they read
        to_them, from_them = theirs_in[1], ours_out[0]

        def place_pipes():
            spare_in, spare_out = os.dup(theirs_in[0]), os.dup(ours_out[1])
            os.dup2(spare_in, 3)
            os.dup2(spare_out, 4)

        self.process = subprocess.Popen(
            [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
             "--remote-debugging-pipe", "--window-size=1400,900", "--no-first-run",
             "--user-data-dir=" + self.folder, "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            close_fds=False, preexec_fn=place_pipes)
        os.close(theirs_in[0])
        os.close(ours_out[1])
        self.out, self.source = to_them, from_them
        self.rest, self.last, self.session = b"", 0, None
        self.problems = []

    def receive(self):
        while b"\0" not in self.rest:
            got = os.read(self.source, 1 << 16)
            if not got:
                raise RuntimeError("the browser has ended")
            self.rest += got
        text, self.rest = self.rest.split(b"\0", 1)
        message = json.loads(text)
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(message["params"])[:600])
        if message.get("method") == "Log.entryAdded":
            self.problems.append(json.dumps(message["params"])[:600])
        if message.get("method") == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            if not url.startswith(self.mine):
                self.problems.append("asks the network for " + url)
        return message

    def call(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        while True:
            answer = self.receive()
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]))
                return answer["result"]

    def attach(self):
        targets = self.call("Target.getTargets")["targetInfos"]
        page = [t for t in targets if t["type"] == "page"][0]
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"],
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def run(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError("%s: %s" % (expression, answer["exceptionDetails"]))
        return answer["result"].get("value")

    def state(self):
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return self.run("trace.state")

    def key(self, key, modifiers=0):
        text = key if len(key) == 1 else {"Enter": "\r"}.get(key)
        codes = {"Enter": 13, "Tab": 9, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}
        more = {"windowsVirtualKeyCode": codes.get(key, ord(key.upper()) if len(key) == 1 else 0)}
        if text:
            more["text"] = text
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, modifiers=modifiers, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, modifiers=modifiers)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type="mouse" + kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("Moved", x, y)
        self.mouse("Pressed", x, y, button="left", clickCount=1)
        self.mouse("Released", x, y, button="left", clickCount=1)

    def click_on(self, selector):
        box = self.run("(() => { const b = document.querySelector(%s).getBoundingClientRect();"
                       "return [b.left + b.width / 2, b.top + b.height / 2]; })()"
                       % json.dumps(selector))
        self.click(*box)

    def shoot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (RuntimeError, OSError):
            pass
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
