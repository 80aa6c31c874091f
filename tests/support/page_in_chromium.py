# SPDX-License-Identifier: Apache-2.0
"""Clicks through the page of a trace in a headless Chromium.

    page_in_chromium.py PAGE [--large | --many | --experts | --rows] [--shots FOLDER]

Controls the browser over two pipes (--remote-debugging-pipe): JSON messages,
each ended by a zero byte. Input uses the browser's own mouse and key events, so
the test does what a user does. Exits with 1 and a line with the failed claim.
"""
import json
import os
import shutil
import sys
import time

from browser import Browser


def check(condition, claim):
    if not condition:
        print("FAILED: " + claim, file=sys.stderr)
        raise SystemExit(1)


class Page:
    def __init__(self, browser, url, shots):
        self.b, self.shots = browser, shots
        browser.call("Page.navigate", url=url)
        for _ in range(200):
            if browser.run("document.readyState === 'complete' && !!window.trace"):
                break
            time.sleep(0.05)
        check(browser.run("!!window.trace"), "the page starts")
        self.box = browser.run("(() => { const b = document.getElementById('lanes')"
                               ".getBoundingClientRect(); return [b.left, b.top]; })()")

    def shoot(self, name):
        if self.shots:
            self.b.shoot(os.path.join(self.shots, name + ".png"))

    def place(self, row, ns):
        """Returns the screen position of a time in a row."""
        s = self.b.state()
        share = (ns - s["view"]["from"]) / (s["view"]["to"] - s["view"]["from"])
        x = s["gutter"] + share * (s["width"] - s["gutter"])
        return self.box[0] + x, self.box[1] + row["y"] + row["h"] / 2

    def lane(self, device):
        return [r for r in self.b.state()["rows"] if r["kind"] == "lane" and r["device"] == device][0]

    def firing(self, condition):
        return self.b.run("(() => { const f = trace.firings, a = trace.actors, s = trace.steps;"
                          "for (let i = 0; i < f.count; i++) if (%s) return {i, start: f.start[i],"
                          "end: f.end[i], name: a[f.actor[i]].name, microbatch: f.microbatch[i]};"
                          "return null; })()" % condition)


def span(state):
    return state["view"]["to"] - state["view"]["from"]


def test_zoom_and_pan(p):
    b = p.b
    s = b.state()
    row = p.lane(0)
    middle = (s["view"]["from"] + s["view"]["to"]) / 2
    x, y = p.place(row, middle)
    b.mouse("Wheel", x, y, deltaX=0, deltaY=-240)
    zoomed = b.state()
    check(span(zoomed) < span(s) * 0.6, "the wheel zooms in")
    x2, _ = p.place(row, middle)
    check(abs(x2 - x) < 2, "what the pointer is on stays under it: %s, %s" % (x, x2))
    b.mouse("Pressed", x, y, button="left", clickCount=1)
    b.mouse("Moved", x - 200, y, button="left")
    b.mouse("Released", x - 200, y, button="left", clickCount=1)
    dragged = b.state()
    check(dragged["view"]["from"] > zoomed["view"]["from"] and
          abs(span(dragged) - span(zoomed)) < 1e-3 * span(zoomed), "dragging moves the view")
    b.key("ArrowLeft")
    check(b.state()["view"]["from"] < dragged["view"]["from"], "an arrow key moves the view")
    b.key("+")
    check(span(b.state()) < span(dragged), "+ zooms in")
    b.key("-")
    b.key("-")
    check(span(b.state()) > span(dragged), "- zooms out")


def test_steps(p):
    b = p.b
    b.key("0")
    check(b.state()["current"] == -1, "0 shows the whole trace")
    count = b.run("trace.steps.length")
    b.key("]")
    first = b.state()["current"]
    b.key("]")
    check(b.state()["current"] == min(first + 1, count - 1), "] shows the next step")
    b.click_on("#previous")
    check(b.state()["current"] == first, "a button shows the step before")
    view = b.state()["view"]
    step = b.run("trace.steps[%d]" % first)
    check(view["from"] <= step["from"] and view["to"] >= step["to"], "the whole step is seen")
    table = b.run("document.getElementById('table').textContent")
    check("busy" in table and "credit" in table, "the table says where the time went")


def test_hover(p):
    b = p.b
    step = b.run("trace.steps[trace.state.current]")
    f = p.firing("f.step[i] === %d && a[f.actor[i]].name === 'B0' && f.microbatch[i] === 0"
                 % step["step"])
    check(f, "there is a firing to point at")
    row = p.lane(0)
    x, y = p.place(row, (f["start"] + f["end"]) / 2)
    b.mouse("Moved", x, y)
    tip = b.state()["tip"]
    check("B0, microbatch 0" in tip, "pointing at a firing says what ran: " + tip)
    check("for input: register bwd@1" in tip, "and why it waited, for which register: " + tip)
    p.shoot("hover")
    gap = b.run("(() => { const p = trace.idle[0], s = %s; for (let i = 0; i < p.count; i++)"
                "if (p.firing[i] === %d) return [p.from[i], p.to[i]]; })()" % (json.dumps(step), f["i"]))
    x, y = p.place(row, (gap[0] + gap[1]) / 2)
    b.mouse("Moved", x, y)
    tip = b.state()["tip"]
    check(tip.startswith("idle") and "bwd@1" in tip, "pointing at a wait says for what: " + tip)
    memory = [r for r in b.state()["rows"] if r["kind"] == "memory"][0]
    b.mouse("Moved", x, p.box[1] + memory["y"] + 10)
    check("in use on" in b.state()["tip"], "pointing at the memory says how much")
    credits = [r for r in b.state()["rows"] if r["kind"] == "credits"][0]
    b.mouse("Moved", x, p.box[1] + credits["y"] + 10)
    tip = b.state()["tip"]
    check("slots of" in tip, "pointing at the credits says whose")
    b.click(x, p.box[1] + credits["y"] + 10)
    b.mouse("Moved", x + 1, p.box[1] + credits["y"] + 10)
    check(b.state()["tip"] != tip, "a click shows another register's credits")


def test_search(p):
    b = p.b
    b.key("/")
    for c in "b2":
        b.key(c)
    s = b.state()
    count = b.run("(() => { let n = 0; const f = trace.firings; for (let i = 0; i < f.count; i++)"
                  "if (trace.actors[f.actor[i]].name.toLowerCase().includes('b2')) n++; return n; })()")
    check(s["matches"] >= count > 0, "the search finds all firings of an actor")
    b.key("Enter")
    one = b.state()
    b.key("Enter")
    two = b.state()
    check(one["selected"] >= 0 and two["selected"] != one["selected"], "enter goes from match to match")
    p.shoot("search")
    b.key("Escape")
    check(b.state()["matches"] == 0 and b.state()["tip"] == "", "escape ends the search")
    b.run("document.getElementById('lanes').focus()")
    b.key("Tab")
    a = b.state()
    b.key("Tab")
    check(b.state()["selected"] != a["selected"] and b.state()["tip"], "tab goes from firing to firing")
    b.key("Escape")


def test_toggles(p):
    b = p.b
    kinds = lambda: {r["kind"] for r in b.state()["rows"]}
    check(kinds() >= {"lane", "memory", "credits", "replay"}, "the curves and the replay are there")
    b.key("q")
    check("queue" in kinds(), "q shows the links")
    p.shoot("queues")
    b.click_on("#toggle-memory")
    check("memory" not in kinds(), "a button hides the memory")
    for key in "mq":
        b.key(key)
    b.key("?")
    check(b.run("document.getElementById('help').open"), "? opens the help")
    p.shoot("help")
    b.key("Escape")
    check(not b.run("document.getElementById('help').open"), "escape closes it")


def test_pixels(p):
    """Checks that a firing's pixels have the colour of its class, and a wait's do not."""
    b = p.b
    b.key("]")
    b.key("[")
    step = b.run("trace.steps[trace.state.current]")
    f = p.firing("f.step[i] === %d && a[f.actor[i]].name === 'B0'" % step["step"])
    x, y = p.place(p.lane(0), f["start"] + 0.1 * (f["end"] - f["start"]))
    color = b.run("(() => { const c = document.getElementById('lanes'), r = c.width / c.clientWidth;"
                  "return [...c.getContext('2d').getImageData(%f * r, %f * r, 1, 1).data]; })()"
                  % (x - p.box[0], y - p.box[1]))
    check(color[:3] == [0xe6, 0x9f, 0x00], "B is orange: %s" % color)


def test_many(p):
    """Checks that 64 devices fit the window, as low lanes with labels; curves appear on request."""
    b = p.b
    state = b.run("trace.state")
    check(len(state["rows"]) == 64, "%d rows for 64 devices" % len(state["rows"]))
    check({row["kind"] for row in state["rows"]} == {"lane"}, "lanes alone at first")
    bottom = max(row["y"] + row["h"] for row in state["rows"])
    room = b.run("document.getElementById('scroll').clientHeight")
    check(bottom < 1.25 * room, "64 lanes are %d pixels high, the window has %d" % (bottom, room))
    text = b.run("document.getElementById('table').textContent")
    check("stage 0 #1" in text and "stage 7 #7" in text, "devices of a grid say stage and rank")
    legend = b.run("document.getElementById('legend').textContent")
    check("backward" in legend and "input gradient" not in legend, "B is the whole backward here")
    check("waits for an input" in legend, "the legend says what the letters of idle times mean")
    b.key("m")
    b.run("trace.draw()")  # draws now, not with the browser's next frame
    check({row["kind"] for row in b.run("trace.state.rows")} == {"lane", "memory"}, "m shows memory")
    b.key("m")
    p.shoot("many")


def test_experts(p):
    """Checks the tallies of steps: a line per block, a bar per expert; t hides them."""
    b = p.b
    check(not b.run("document.getElementById('tallies').hidden"), "what was counted is shown")
    text = b.run("[...document.querySelectorAll('#tallies tr')].slice(1).map((r) => r.textContent)")
    check(len(text) == 2 and text[0].startswith("h.0") and text[1].startswith("h.1"), "a line a block: %s" % text)
    check(all("%" in line for line in text), "each says how many rows were dropped: %s" % text)
    bars = b.run("[...document.querySelectorAll('#tallies i')].map((i) => [i.getBoundingClientRect().height, i.title])")
    check(len(bars) == 8 and all("dropped" in title for _, title in bars), "a bar for each of four experts: %s" % bars)
    rows = [int(title.split(":")[1].split(",")[0].strip()) for _, title in bars[:4]]
    busiest = rows.index(max(rows))
    check(bars[busiest][0] == max(height for height, _ in bars[:4]), "the busiest has the highest: %s" % bars)
    p.shoot("experts")
    b.key("t")
    check(b.run("document.getElementById('tallies').hidden"), "t hides them")


def test_rows(p):
    """Checks valid rows: a row of bars under each lane, and numbers in the tooltips; v hides them."""
    b = p.b
    kinds = lambda: [r["kind"] for r in b.state()["rows"]]
    check(kinds().count("valid") == len(b.run("trace.devices")), "bars for each device: %s" % kinds())
    index = b.run("(() => { const f = trace.firings, most = Math.max(...f.rows);"
                  "return Array.from(f.rows).findIndex((r, i) => r === most && f.end[i] > f.start[i] &&"
                  "trace.actors[f.actor[i]].cls === 0); })()")
    rows = b.run("trace.select(%d), trace.firings.rows[%d]" % (index, index))
    tip = b.state()["tip"]
    check(rows > 0 and ", %d rows" % rows in tip, "a tip says %d rows: %s" % (rows, tip))
    p.shoot("rows")
    b.key("v")
    check("valid" not in kinds(), "v hides them")


def test_speed(p):
    b = p.b
    b.key("0")
    count = b.run("trace.firings.count")
    check(count >= 200000, "%d firings are many" % count)
    p.shoot("large")
    whole = b.run("(() => { const t = performance.now(); for (let i = 0; i < 10; i++) trace.draw();"
                  "return (performance.now() - t) / 10; })()")
    zoomed = b.run("(() => { const v = trace.state.view, w = (v.to - v.from) / 50; let t = performance.now();"
                   "for (let i = 0; i < 20; i++) { trace.setView(v.to * i / 40, v.to * i / 40 + w); trace.draw(); }"
                   "return (performance.now() - t) / 20; })()")
    print("%d firings: a frame of all takes %.1f ms, of a fiftieth %.1f ms" % (count, whole, zoomed))
    check(whole < 400 and zoomed < 100, "drawing is fast: %.1f ms, %.1f ms" % (whole, zoomed))


def main():
    large = "--large" in sys.argv
    shots = sys.argv[sys.argv.index("--shots") + 1] if "--shots" in sys.argv else None
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    browser = Browser(program)
    try:
        browser.attach()
        page = Page(browser, "file://" + os.path.abspath(sys.argv[1]), shots)
        page.shoot("start")
        if large:
            test_speed(page)
        elif "--many" in sys.argv:
            test_many(page)
        elif "--experts" in sys.argv:
            test_experts(page)
        elif "--rows" in sys.argv:
            test_rows(page)
        else:
            for test in (test_zoom_and_pan, test_steps, test_hover, test_search, test_toggles, test_pixels):
                test(page)
        check(not browser.problems, "nothing goes wrong meanwhile: %s" % browser.problems[:2])
    finally:
        browser.close()


main()
