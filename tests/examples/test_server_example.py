"""The example of a server: what waits is predicted together, everybody gets their own answer."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from example_files import example
from training.tiny_runs import MOLECULES, train, write_molecules


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("server")
    table = write_molecules(folder / "m.csv")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=['a b']"]
    run = train(folder / "run", *words, "model.hidden_size=8", "trainer.max_epochs=1")
    with example("server").serve(run, port=0) as ready:
        thread = threading.Thread(target=ready.serve_forever)
        thread.start()
        yield ready
        ready.shutdown()
        thread.join()


def ask(server: Any, body: bytes) -> dict[str, Any]:
    request = f"http://localhost:{server.server_port}"
    with urllib.request.urlopen(urllib.request.Request(request, body)) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def test_records_that_wait_are_predicted_together(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = server.batcher.model
    items = [*MOLECULES, "C1CC"] * 3
    expected = model.predict(items)
    sizes, is_open = [], threading.Event()
    predict = model.predict

    def slow(records: list[str]) -> list[dict[str, Any]]:
        sizes.append(len(records))
        is_open.wait()
        return predict(records)

    monkeypatch.setattr(model, "predict", slow)
    with ThreadPoolExecutor(len(items)) as pool:
        answers = [pool.submit(server.batcher.predict, item) for item in items]
        while server.batcher.queue.qsize() < len(items) - sum(sizes):
            pass  # until all others wait for the first
        is_open.set()
        found = [answer.result() for answer in answers]
    assert sum(sizes) == len(items)
    assert len(sizes) <= 3
    for told, right in zip(found, expected, strict=True):
        assert told["line"] == 1
        assert told["reason"] == right["reason"]
        assert told["prediction"] == pytest.approx(right["prediction"], abs=1e-5)


def test_each_request_is_answered(server: Any) -> None:
    told = ask(server, b'"CCO"')
    assert told["reason"] == ""
    assert told["prediction"] == pytest.approx(ask(server, b'"OCC"')["prediction"], abs=1e-5)
    assert "unclosed ring" in ask(server, b'"C1CC"')["reason"]
    with pytest.raises(urllib.error.HTTPError, match="400"):
        ask(server, b"CCO")


def test_an_error_reaches_those_who_wait(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: list[str]) -> None:
        raise MemoryError("too many")

    with monkeypatch.context() as patch:
        patch.setattr(server.batcher.model, "predict", fail)
        with pytest.raises(MemoryError, match="too many"):
            server.batcher.predict("CCO")
    assert server.batcher.predict("CCO")["reason"] == ""
