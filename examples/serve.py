"""Predictions over HTTP: the records of all requests that wait are predicted together.

    pip install 'graphfold[serve]'
    python examples/serve.py RUN [--host localhost] [--port 8000]
    curl localhost:8000/predict -H 'content-type: application/json' -d '{"records": ["CCO"]}'

A record is the text of a SMILES or of a tree. The answer has, for each of them, what
`graphfold.load(RUN).predict(records)` gives: a prediction, or the reason why there is none; a bad
record costs only itself. `/health` says whether the server predicts, `/metrics` counts for
Prometheus, `/docs` describes all three.

One record takes milliseconds and a record of many a fraction of one, so while a batch is computed
the next one gathers. One process uses one core; for more, start more of them behind a balancer.
"""

import argparse
import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI, HTTPException, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from pydantic import BaseModel, Field

import graphfold

#: Records of a batch, records that may wait, and bytes of a request: nobody waits for more.
LARGEST_BATCH, MOST_WAITING, LARGEST_BODY = 256, 4096, 8 << 20


class Request(BaseModel):
    """Some records: texts."""

    records: list[Any] = Field(min_length=1, max_length=MOST_WAITING)


class Batcher:
    """Predicts in one thread, for many that wait."""

    def __init__(self, model, registry):
        self.model, self.queue, self.worker = model, asyncio.Queue(), None
        self.thread = ThreadPoolExecutor(1, "predict")
        waiting = Gauge("graphfold_waiting_records", "not predicted yet", registry=registry)
        waiting.set_function(self.queue.qsize)
        ends = [1, 2, 4, 8, 16, 32, 64, 128, LARGEST_BATCH]
        self.sizes = Histogram(
            "graphfold_batch_records", "in a batch", registry=registry, buckets=ends
        )

    async def predict(self, records):
        """The answer for each record, when the batches with them are predicted."""
        if self.queue.qsize() + len(records) > MOST_WAITING:
            raise HTTPException(503, "too many records wait", {"Retry-After": "1"})
        answers = [asyncio.get_running_loop().create_future() for _ in records]
        for pair in zip(records, answers, strict=True):
            self.queue.put_nowait(pair)
        return await asyncio.gather(*answers)

    async def work(self):
        """Takes what waits, batch after batch, until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            batch = [await self.queue.get()]
            while len(batch) < LARGEST_BATCH and not self.queue.empty():
                batch.append(self.queue.get_nowait())
            self.sizes.observe(len(batch))
            records = [record for record, _ in batch]
            answers = await loop.run_in_executor(self.thread, self._answers, records)
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.cancelled():  # whoever asked may have gone
                    future.set_result(answer)

    def _answers(self, records):
        """The answer for each record; one that the model fails on does not take others with it."""
        try:
            return self.model.predict(records)
        except Exception as error:
            if len(records) > 1:
                return [answer for record in records for answer in self._answers([record])]
            logging.exception("cannot predict a record")
            return [{"prediction": None, "reason": f"the model fails ({error!r})", "failed": True}]


class LimitBody:
    """Refuses requests with larger bodies before all of them is read."""

    def __init__(self, app, most):
        self.app, self.most = app, most

    async def __call__(self, scope, receive, send):
        size = 0

        async def counted():
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > self.most:
                raise HTTPException(413, f"the body has more than {self.most:,} bytes")
            return message

        await self.app(scope, counted, send)


def make_app(run):
    """The application that serves a run: a folder or a checkpoint."""
    # Few nodes are computed sooner by one thread than shared out: on busy cores by ten times.
    torch.set_num_threads(1)
    graphfold.keep_memory()
    registry = CollectorRegistry()
    batcher = Batcher(graphfold.load(run), registry)
    results = Counter("graphfold_records", "answered, by result", ["result"], registry=registry)
    seconds = Histogram("graphfold_request_seconds", "until the answer", registry=registry)

    @asynccontextmanager
    async def lifespan(_):
        batcher.worker = asyncio.create_task(batcher.work())
        yield
        batcher.worker.cancel()
        with suppress(asyncio.CancelledError):
            await batcher.worker

    app = FastAPI(title="graphfold", version=graphfold.__version__, lifespan=lifespan)
    app.state.batcher = batcher
    app.add_middleware(LimitBody, most=LARGEST_BODY)

    @app.post("/predict")
    async def predict(request: Request):
        begin = time.perf_counter()
        answers = await batcher.predict(request.records)
        for answer in answers:
            failed = answer.pop("failed", False)
            result = "failed" if failed else "unreadable" if answer["reason"] else "predicted"
            results.labels(result).inc()
        seconds.observe(time.perf_counter() - begin)
        return {"predictions": [{**a, "line": n} for n, a in enumerate(answers, start=1)]}

    @app.get("/health")
    async def health():
        if batcher.worker is None or batcher.worker.done():
            raise HTTPException(503, "the thread that predicts has ended")
        return {"status": "ok", "run": str(run), "graphfold": graphfold.__version__}

    @app.get("/metrics")
    async def metrics():
        return Response(generate_latest(registry), media_type="text/plain; version=0.0.4")

    return app


def main(argv=None):
    """Serves the run that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", metavar="RUN", help="a run folder or a checkpoint")
    parser.add_argument("--host", default="localhost", help="0.0.0.0 lets other machines in")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args(argv)
    uvicorn.run(make_app(options.run), host=options.host, port=options.port, access_log=False)


if __name__ == "__main__":
    main()
