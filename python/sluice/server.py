# SPDX-License-Identifier: Apache-2.0
"""Serving: actorserve as a child process of this program, with OpenAI's API."""
from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import urllib.request
from typing import Any, Dict, List, Optional, Union

from . import _library as c
from . import errors
from .models import Model, in_python, words
from .run import Run

SECONDS = 600  # time to load the weights


class Server:
    """A server at `url`, until close() or the end of the program."""

    def __init__(self, model: Union[str, "os.PathLike[str]", Model, Run], **options: Any) -> None:
        self.folder: Optional[tempfile.TemporaryDirectory[str]] = None
        self.process: Any = None
        options = {"port": 0, **self._name(model), **options}
        command = [c.tool("actorserve"), *words(options), *self._model(model)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://\S+", line)
        if not found:
            said = self.process.communicate()[1].strip()
            self.close()
            raise errors.Error(in_python(re.sub("^actorserve: ", "", said)))
        self.url = found[0]

    def _model(self, model: Any) -> List[str]:
        """Returns the words for a model. The parameters of a run are saved to a file first."""
        if isinstance(model, Model):
            return model.words()
        if not isinstance(model, Run):
            return [os.fspath(model)]
        if not isinstance(model.model, Model):
            raise TypeError("serve: the run is of a model in Python; sl.Session(run.model, run) continues its texts")
        self.folder = tempfile.TemporaryDirectory()
        path = os.path.join(self.folder.name, "weights.safetensors")
        model.save(path)
        return model.model.words(init=path)

    @staticmethod
    def _name(model: Any) -> Dict[str, str]:
        """Returns the name of a run's model for clients: that of its files, or of the model itself."""
        if not isinstance(model, Run) or not isinstance(model.model, Model):
            return {}
        path = (model.model.weights or model.model.__name__).rstrip("/")
        return {"served_model_name": re.sub(r"\.(gguf|safetensors)$", "", os.path.basename(path)).replace(",", "-")}

    def ask(self, where: str, **body: Any) -> Dict[str, Any]:
        """Posts a request to the API: ask("completions", prompt="Once", max_tokens=20)."""
        request = urllib.request.Request("%s/%s" % (self.url, where), json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return dict(json.load(answer))

    def complete(self, prompt: str, **settings: Any) -> str:
        """Returns the continuation of a text."""
        return str(self.ask("completions", prompt=prompt, **settings)["choices"][0]["text"])

    def close(self) -> None:
        """Ends the server, after the requests in progress are answered."""
        process, self.process = self.process, None
        if process:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.wait()
            process.stdout.close()
            process.stderr.close()
        if self.folder:
            self.folder.cleanup()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "process", None):
            self.close()

    def __repr__(self) -> str:
        return "<Server at %s>" % self.url if self.process else "<Server, closed>"


def serve(model: Union[str, "os.PathLike[str]", Model, Run], **options: Any) -> Server:
    """Serves a folder, a GGUF file, a model of sl.load or sl.models, or the trained weights of a run of such a model,
    over HTTP with OpenAI's API, at a free port of this machine. Options are those of actorserve, with _ instead of -:
    port=8000, stages=2, api_key_file="key"."""
    return Server(model, **options)
