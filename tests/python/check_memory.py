# SPDX-License-Identifier: Apache-2.0
"""A program whose memory runs out gets an exception, and goes on when there is memory again."""
import subprocess
import sys
import unittest

PROGRAM = r'''
import resource
import sys
import numpy as np
import sluice as sl

ROOM, WIDTH, LAYERS = (int(word) for word in sys.argv[1:])
X = np.zeros((64, 512), np.float32)


def model(g, width=WIDTH, layers=LAYERS):
    x, y = g.data(8, x=X, y=X)
    for i in range(layers):
        g.block("h%d" % i)
        x = g.tanh(g.linear(x, g.param("w%d" % i, (width, x.shape[-1]), sl.normal(0.5))))
    g.block("head")
    g.train(g.mse(g.linear(x, g.param("head", (512, width))), y), lr=0.01)


def limit(bytes):
    resource.setrlimit(resource.RLIMIT_AS, (bytes, resource.RLIM_INFINITY))


with open("/proc/self/statm") as file:
    limit(int(file.read().split()[0]) * resource.getpagesize() + ROOM)
try:
    sl.Run(model, stages=2, microbatches=2, threads=1).train(1)
    print("trained")
except MemoryError as error:
    print("Python:", error)
except sl.MemoryError as error:
    print("Sluice:", error)
limit(resource.RLIM_INFINITY)
print(sl.Run(lambda g: model(g, 16, 2), stages=2, threads=1).train(1)[0].loss >= 0)
'''


class Memory(unittest.TestCase):
    def lines(self, mib, width, layers):
        done = subprocess.run([sys.executable, "-c", PROGRAM, str(mib << 20), str(width), str(layers)],
                              capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, "in %d MiB: %s" % (mib, done.stderr))
        return done.stdout.splitlines()

    def test_records(self):
        """Hundreds of layers, in memory that holds a part of the graph, of the plan or of the run."""
        for mib in 0, 1, 2, 4, 8, 32:
            said, again = self.lines(mib, 16, 300)
            self.assertRegex(said, "^Python|^Sluice: .*(memory for|of memory)", mib)
            self.assertEqual(again, "True")

    def test_tensors(self):
        """Wide layers, which the devices' memory does not hold."""
        for mib in 100, 200:
            said, again = self.lines(mib, 1024, 20)
            self.assertRegex(said, "^Sluice: .*(memory for|of memory)", mib)
            self.assertEqual(again, "True")
