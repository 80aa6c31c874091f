# SPDX-License-Identifier: Apache-2.0
"""Defines a model, trains, evaluates and tunes it, and shows a trace: run it cell by cell."""
import numpy as np
import sluice as sl

# %% Two moons: which one does a point belong to?
angle, label = np.random.default_rng(0).uniform(0, np.pi, 512), np.arange(512) % 2
moons = [[np.cos(angle), np.sin(angle)], [1 - np.cos(angle), 0.5 - np.sin(angle)]]
points = np.where(label, moons[1], moons[0]).T

# %% A model: the same calls as in C
def model(g: sl.Graph, width: int = 32) -> None:
    x, y = g.data(256, points=points, label=label)  # 256 of the 512 rows per step
    for name in "first", "second":
        g.block(name)
        x = g.gelu(g.dense(x, width, name))
    g.block("head")
    logits = g.output("logits", g.dense(x, 2, "head"))
    g.train(g.cross_entropy(logits, y), lr=0.01)

# %% Train it as a pipeline of two stages, and evaluate it
run = sl.Run(model, stages=2, microbatches=4, schedule="1f1b")
print(run.train(150)[-1])
seen = run.evaluate(points=points, label=label)
print("right: %.1f %%, loss: %.4f" % (100 * np.mean(seen["logits"].argmax(1) == label), seen["loss"]))

# %% Search for the quotas that give the best speed for their memory
print(sl.tune(model, stages=2, microbatches=[2, 4], effort=30))

# %% See where the time goes
print(run.trace().show())
