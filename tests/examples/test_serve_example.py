"""The server: what waits is predicted together, everybody gets their own answer, bad ones too."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from example_files import example
from training.tiny_runs import train, write_molecules

import graphfold

uvicorn = pytest.importorskip("uvicorn", reason="the server needs graphfold[serve]")
pytest.importorskip("fastapi", reason="the server needs graphfold[serve]")
pytest.importorskip("prometheus_client", reason="the server needs graphfold[serve]")


class Server:
    """A server in a thread, with what it predicts with."""

    def __init__(self, run: Path) -> None:
        self.example = example("serve")
        self.app = self.example.make_app(run)
        self.batcher = self.app.state.batcher
        config = uvicorn.Config(self.app, port=0, log_level="warning")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        self.port = self.server.servers[0].sockets[0].getsockname()[1]

    def ask(self, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        """Status and text of an answer; a body that is no text is sent as JSON."""
        connection = http.client.HTTPConnection("localhost", self.port)
        text = body if isinstance(body, str | bytes | None) else json.dumps(body)
        headers = {"content-type": "application/json", **headers}
        connection.request("GET" if body is None else "POST", path, text, headers)
        answer = connection.getresponse()
        status, content = answer.status, answer.read().decode()
        connection.close()
        return status, content

    def predict(self, *records: Any) -> list[dict[str, Any]]:
        status, text = self.ask("/predict", {"records": records})
        assert status == 200, text
        found: list[dict[str, Any]] = json.loads(text)["predictions"]
        return found

    def metric(self, name: str) -> float:
        status, text = self.ask("/metrics")
        assert status == 200
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
        return float(lines.get(name, 0))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("server")
    table = write_molecules(folder / "m.csv")
    words = ["data=smiles", f"data.path={table}", "data.target_columns=['a b']"]
    return train(folder / "run", *words, "model.hidden_size=8", "trainer.max_epochs=1")


@pytest.fixture(scope="module")
def server(run: Path) -> Iterator[Server]:
    ready = Server(run)
    yield ready
    ready.server.should_exit = True
    ready.thread.join()


def test_32_clients_get_the_answers_to_their_own_records(server, run):
    smiles = ["C" * n + end for n in range(1, 17) for end in ("O", "N")]
    model = graphfold.load(run)
    expected = {item: model.predict([item])[0]["prediction"] for item in smiles}
    before = server.metric("graphfold_batch_records_count")
    predicted = server.metric('graphfold_records_total{result="predicted"}')

    def client(number: int) -> None:
        for turn in range(6):
            item = smiles[(number + turn) % len(smiles)]
            good, bad, other = server.predict(item, "C1CC", smiles[turn])
            assert good["prediction"] == pytest.approx(expected[item], abs=1e-5)
            assert other["prediction"] == pytest.approx(expected[smiles[turn]], abs=1e-5)
            assert (good["reason"], good["line"], bad["line"], other["line"]) == ("", 1, 2, 3)
            assert "unclosed ring" in bad["reason"]
            assert bad["prediction"] is None

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(client, range(32)))
    batches = server.metric("graphfold_batch_records_count") - before
    assert server.metric('graphfold_records_total{result="predicted"}') - predicted == 32 * 6 * 2
    assert batches < 32 * 6  # fewer than there were requests


def test_a_record_that_the_model_fails_on_costs_only_itself(server, monkeypatch, caplog):
    predict = server.batcher.model.predict

    def failing(records: list[str]) -> list[dict[str, Any]]:
        if "CCO" in records:
            raise MemoryError("too many")
        found: list[dict[str, Any]] = predict(records)
        return found

    monkeypatch.setattr(server.batcher.model, "predict", failing)
    before = server.metric('graphfold_records_total{result="failed"}')
    first, second, third = server.predict("CCN", "CCO", "CC")
    assert first["reason"] == third["reason"] == ""
    assert second == {"prediction": None, "reason": second["reason"], "line": 2}
    assert second["reason"] == "the model fails (MemoryError('too many'))"
    assert "cannot predict a record" in caplog.text
    assert server.metric('graphfold_records_total{result="failed"}') == before + 1
    monkeypatch.undo()
    assert server.predict("CCO")[0]["reason"] == ""


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        ("CCO", 422, "JSON decode error"),
        ('{"records": "CCO"}', 422, "valid list"),
        ('{"records": []}', 422, "at least 1 item"),
        ('["CCO"]', 422, "valid dictionary"),
        (json.dumps({"records": ["C" * (8 << 20)]}), 413, "more than 8,388,608 bytes"),
    ],
)
def test_wrong_requests_are_refused(server, body, status, text):
    found, content = server.ask("/predict", body)
    assert (found, text in content) == (status, True), content
    assert server.predict("CCO")[0]["reason"] == ""


def test_too_many_that_wait_are_refused(server, monkeypatch):
    monkeypatch.setattr(server.example, "MOST_WAITING", 2)
    status, text = server.ask("/predict", {"records": ["C"] * 3})
    assert (status, text) == (503, '{"detail":"too many records wait"}')


def test_health_says_whether_it_predicts(server, run):
    status, text = server.ask("/health")
    assert status == 200
    assert json.loads(text)["run"] == str(run)
    assert json.loads(text)["status"] == "ok"
    worker = server.batcher.worker
    try:
        server.batcher.worker = None
        assert server.ask("/health")[0] == 503
    finally:
        server.batcher.worker = worker
