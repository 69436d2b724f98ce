"""Predictions over HTTP: the records that wait are predicted together.

    python examples/server.py RUN [PORT]
    curl -d '"CCO"' localhost:8000

The body is one record as JSON: the text of a SMILES or of a tree, or a JSON record itself. The
answer is what `graphfold.load(RUN).predict([record])` gives for it. One record takes milliseconds
and a record of many a fraction of one, so while a batch is computed the next one gathers.
"""

import json
import sys
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from threading import Thread

import torch

import graphfold

#: Bytes of a body, and records of a batch: nobody waits for more of others.
LARGEST_BODY, LARGEST_BATCH = 1 << 20, 256


class Batcher:
    """Predicts in one thread, for many that wait."""

    def __init__(self, model):
        self.model, self.queue = model, SimpleQueue()
        Thread(target=self._work, daemon=True).start()

    def predict(self, record):
        """The answer for a record; returns when its batch is predicted."""
        answer = Future()
        self.queue.put((record, answer))
        return answer.result()

    def _work(self):
        while True:
            waiting = [self.queue.get()]
            while len(waiting) < LARGEST_BATCH and not self.queue.empty():
                waiting.append(self.queue.get())
            try:
                answers = self.model.predict([record for record, _ in waiting])
            except Exception as error:  # those that wait have to hear of it
                for _, answer in waiting:
                    answer.set_exception(error)
                continue
            for (_, answer), told in zip(waiting, answers, strict=True):
                answer.set_result({**told, "line": 1})  # not the place in the batch


class Handler(BaseHTTPRequestHandler):
    """Answers POST with a prediction."""

    def do_POST(self):
        size = int(self.headers.get("Content-Length", 0))
        if size > LARGEST_BODY:
            self.send_error(413)
            return
        try:
            record = json.loads(self.rfile.read(size))
        except ValueError as error:
            self.send_error(400, "no JSON", str(error))
            return
        content = json.dumps(self.server.batcher.predict(record)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Says nothing of requests that went well."""


def serve(run, port=8000):
    """A server that is ready; `serve_forever` runs it."""
    # Few nodes are computed sooner by one thread than shared out: on busy cores by ten times.
    torch.set_num_threads(1)
    graphfold.keep_memory()
    server = ThreadingHTTPServer(("localhost", port), Handler)
    server.batcher = Batcher(graphfold.load(run))
    return server


def main(argv=None):
    """Serves the run that the command line names."""
    words = sys.argv[1:] if argv is None else argv
    if not 1 <= len(words) <= 2:
        sys.exit(__doc__)
    with serve(words[0], *map(int, words[1:])) as server:
        print(f"http://localhost:{server.server_port}")
        server.serve_forever()


if __name__ == "__main__":
    main()
