"""torchmetrics as `graphfold train` loads it; each test in a process of its own."""

from __future__ import annotations

import subprocess
import sys

START = """
import sys
from graphfold.training.process.light_torchmetrics import load_torchmetrics_lightly
"""


def run(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", START + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_lightning_needs_no_metrics_and_all_are_found_when_asked_for() -> None:
    code = """
load_torchmetrics_lightly()
from lightning.pytorch import Trainer
heavy = ("scipy.signal", "transformers", "torchmetrics.functional")
print([name for name in heavy if name in sys.modules])
from torchmetrics import Metric
import torchmetrics
print(issubclass(torchmetrics.Accuracy, object), torchmetrics.Metric is Metric)
print(issubclass(torchmetrics.MeanMetric, Metric), torchmetrics.functional.accuracy.__name__)
try:
    torchmetrics.NoSuchMetric
except AttributeError as error:
    print(error)
"""
    unknown = "module 'torchmetrics' has no attribute 'NoSuchMetric'"
    assert run(code) == ["[]", "True True", "True accuracy", unknown]


def test_a_version_that_needs_more_is_loaded_as_it_wants_to_be() -> None:
    code = """
sys.modules["torchmetrics.collections"] = None  # as if it could not be loaded on its own
load_torchmetrics_lightly()
print("torchmetrics" in sys.modules)
import torchmetrics
load_torchmetrics_lightly()
print(sys.modules["torchmetrics"] is torchmetrics, hasattr(torchmetrics, "Accuracy"))
"""
    assert run(code) == ["False", "True True"]
