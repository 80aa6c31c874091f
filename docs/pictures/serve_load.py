# SPDX-License-Identifier: Apache-2.0
"""Six answers under way, two to each of three requests, and then a long prompt."""
import http.client, json, sys, threading, time


def ask(prompt, tokens, n=1):
    wire = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
    wire.request("POST", "/v1/completions", json.dumps({"prompt": prompt, "max_tokens": tokens, "n": n}))
    wire.getresponse().read()


threads = [threading.Thread(target=ask, args=("stream", 100, 2)) for _ in range(3)]
threads.append(threading.Thread(target=ask, args=("a long prompt " * 20, 12)))
ask("warm up", 20)
for thread in threads:
    thread.start()
    time.sleep(0.002 if thread is not threads[2] else 0.1)
for thread in threads:
    thread.join()
