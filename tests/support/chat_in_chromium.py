# SPDX-License-Identifier: Apache-2.0
"""Chats on the page of a server whose dummy model echoes the last message.

    chat_in_chromium.py PORT CHROMIUM

Exits with 1 and a line with the failed claim."""
import json
import sys
import time

from browser import Browser
from serve_client import check

port, program = sys.argv[1:]
url = "http://127.0.0.1:%s/" % port
browser = Browser(program, mine=(url, "data:"))


def until(what, expression):
    end = time.monotonic() + 60
    while not browser.run(expression):
        check(time.monotonic() < end, "not in a minute:", what, browser.run("document.body.innerText"))
        time.sleep(0.05)


def put(field, value):
    browser.run("{ const f = document.getElementById(%s); f.value = %s; f.dispatchEvent(new Event('change')); }"
                % (json.dumps(field), json.dumps(value)))


def say(text):
    browser.click_on("#text")
    browser.call("Input.insertText", text=text)
    browser.key("Enter")


def last(kind):
    return "[...document.querySelectorAll('.%s')].pop()?.innerText" % kind


def width_fits():
    return browser.run("document.documentElement.scrollWidth <= innerWidth")


try:
    browser.attach()
    browser.call("Page.navigate", url=url)
    until("a key is asked for", "document.getElementById('model')?.textContent.includes('key')")
    check(not browser.run("document.getElementById('settings').hidden"), "the field of the key is shown")
    put("key", "secret")
    until("the model's name is shown", "document.getElementById('model').textContent === 'made-up'")
    put("most", "40")
    say("Hello <b>there</b>!")
    until("it answers", last("assistant") + "?.startsWith('Hello <b>there</b>!Hello')")
    until("it counts tokens", "document.getElementById('note').textContent.includes('40 written')")
    check(browser.run(last("user")) == "Hello <b>there</b>!", "what was said is a text, and no HTML")
    say("<think>Hm.</think>Yes.")
    until("reasoning is apart", "document.querySelector('details div')?.textContent === 'Hm.'")
    until("from the answer", last("assistant") + ".includes('Yes.<think>')")
    put("most", "7000")
    until("the answer is over", "document.getElementById('send').textContent === 'Send'")
    say("x" * 300)
    until("it goes on", last("assistant") + ".startsWith('xx')")
    check(width_fits(), "long words wrap")
    browser.click_on("#send")
    until("it can be stopped", "document.getElementById('send').textContent === 'Send'")
    put("most", "0")
    say("again")
    until("what is refused is shown", last("error") + "?.includes('max_tokens is 0')")
    for scheme in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        light = browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        check(light == (scheme == "light"), scheme, "is followed")
    browser.call("Emulation.setDeviceMetricsOverride", width=360, height=640, deviceScaleFactor=1, mobile=True)
    check(width_fits(), "a narrow screen has room")
    browser.click_on("#clear")
    until("a new chat is empty", "document.querySelectorAll('.said').length === 1")
    wrong = [p for p in browser.problems if "status of 40" not in p]
    check(not wrong, "\n".join(wrong))
finally:
    browser.close()
