#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes 200 training chats and 40 held-out ones for the walkthrough in docs/finetuning.md: calls of two functions,
orders as JSON, and small talk.

    python3 make_chats.py chats.jsonl held_out.jsonl
"""
import json
import random
import sys

WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}}
TIMER = {"type": "function", "function": {"name": "set_timer", "parameters": {
    "type": "object", "properties": {"minutes": {"type": "integer"}}, "required": ["minutes"]}}}
PLACES = ["Bonn", "Lagos", "Lima", "Oslo", "Porto", "Quito", "Riga", "Seoul", "Tunis", "Vienna", "Graz", "Cork",
          "Dakar", "Hanoi", "Izmir", "Kyoto", "Leeds", "Malmo", "Nice", "Osaka", "Perth", "Sofia", "Turin", "Utrecht"]
WEATHER_ASKED = ["What is the weather in {}?", "How is the weather in {} today?", "Is it raining in {}?",
                 "Do I need a coat in {}?", "Tell me the weather for {}, please.", "Weather in {}?"]
TIMER_ASKED = ["Set a timer for {} minutes.", "Wake me in {} minutes.", "Start a {} minute timer, please.",
               "The tea takes {} minutes, time it.", "Remind me in {} minutes."]
GOODS = ["apples", "candles", "chairs", "cups", "lamps", "nails", "pens", "plates", "ropes", "spoons", "tiles", "towels"]
ORDERED = ["Please send {} {}.", "I would like to order {} {}.", "We need {} {} by Friday.", "Order: {} {}."]
TALK = [("Hello!", "Hello! How can I help you?"), ("Thank you.", "You are welcome."),
        ("Who are you?", "I am a small assistant. I can look up the weather and set timers."),
        ("Good night.", "Good night!")]


def call(name, arguments):
    return {"role": "assistant", "content": None,
            "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}]}


def chat(dice):
    kind = dice.choice(["weather", "weather", "timer", "timer", "order", "order", "talk"])
    tools = [WEATHER, TIMER]
    dice.shuffle(tools)
    if kind == "weather":
        place = dice.choice(PLACES)
        asked, answer = dice.choice(WEATHER_ASKED).format(place), call("get_weather", {"place": place})
    elif kind == "timer":
        minutes = dice.randint(1, 59)
        asked, answer = dice.choice(TIMER_ASKED).format(minutes), call("set_timer", {"minutes": minutes})
    elif kind == "order":
        number, goods = dice.randint(2, 99), dice.choice(GOODS)
        asked = "Write this order as JSON: " + dice.choice(ORDERED).format(number, goods)
        answer = {"role": "assistant", "content": json.dumps({"item": goods, "quantity": number})}
        tools = None
    else:
        asked, text = dice.choice(TALK)
        answer = {"role": "assistant", "content": text}
    made = {"messages": [{"role": "user", "content": asked}, answer]}
    return {**made, "tools": tools} if tools else made


def main():
    dice = random.Random(1)
    for path, count in zip(sys.argv[1:], (200, 40)):
        with open(path, "w") as out:
            for _ in range(count):
                print(json.dumps(chat(dice)), file=out)


main()
