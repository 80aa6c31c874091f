"""Defines a model, trains, evaluates and tunes it, and shows a trace: run it cell by cell."""
import numpy as np
import sluice as sl

# %% Two moons: which one is a point of?
angle, label = np.random.default_rng(0).uniform(0, np.pi, 512), np.arange(512) % 2
points = np.stack([np.where(label, 1 - np.cos(angle), np.cos(angle)),
                   np.where(label, 0.5 - np.sin(angle), np.sin(angle))], 1)


# %% A model: the calls are those of C
def moons(g, width=32):
    x, y = g.data(256, points=points, label=label)  # 256 rows a step, of 512
    for name, inputs in (("first", 2), ("second", width)):
        g.block(name)
        w = g.param(name + ".weight", (width, inputs), sl.uniform(inputs ** -0.5))
        x = g.gelu(g.linear(x, w, g.param(name + ".bias", (width,), sl.constant(0))))
    g.block("head")
    logits = g.linear(x, g.param("head.weight", (2, width)))
    g.output("logits", logits)
    g.train(g.cross_entropy(logits, y), lr=0.01)


# %% Train it as a pipeline of two stages
run = sl.Run(moons, stages=2, microbatches=4, schedule="1f1b")
history = run.train(150)
print("loss %.3f, then %.4f" % (history[0].loss, history[-1].loss))
print("evaluated: %.4f" % run.evaluate(points=points, label=label)["loss"])
right = run.infer(points=points)["logits"].argmax(1) == label
print("right: %.1f %%, %s" % (100 * right.mean(), run.params["head.weight"].shape))

# %% Which quotas are worth their memory?
tuning = sl.tune(moons, stages=2, microbatches=[2, 4], effort=30)
print(tuning)
print(sl.Run(moons, stages=2, **tuning.best().options()).train(3)[-1])

# %% Where does the time go?
print(run.trace("moons.trace").show())
