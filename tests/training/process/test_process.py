"""Threads and the kernel of products belong to the run; memory is kept for the next step."""

from __future__ import annotations

import ctypes
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from training.tiny_runs import listops, read_json, run, train

from graphfold.datasets.loading.data_module import DataModule
from graphfold.training.loop.fit import Loaders
from graphfold.training.process import process, product_choice
from graphfold.training.process.process import prepare_process
from graphfold.training.process.products import Kernel, products_in_use, use_products
from graphfold.training.run.checkpoint import Checkpoint


@pytest.fixture(autouse=True)
def _environment_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def fast_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which oneDNN wins, as far as the probe can tell."""
    kernels = [Kernel("default", 1.0, 5e-7), Kernel("onednn", 2.0, 1e-6)]
    monkeypatch.setattr(product_choice, "probe_kernels", lambda: kernels)


def test_the_number_of_the_config_is_used_here_and_by_child_processes() -> None:
    assert prepare_process({"threads": 2}) == "threads: 2, products: default"
    assert torch.get_num_threads() == 2
    assert os.environ["OMP_NUM_THREADS"] == "2"


@pytest.mark.parametrize("config", [{}, {"threads": None}])
def test_without_a_number_torch_decides(config: dict[str, Any]) -> None:
    before = torch.get_num_threads()
    prepare_process(config)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    "config", [{}, {"products": "default"}, {"products": "auto", "deterministic": True}]
)
def test_the_default_kernel_where_nothing_else_is_asked_for(config: dict[str, Any]) -> None:
    use_products("onednn")
    prepare_process(config)
    assert products_in_use() == "default"


def test_the_kernel_is_looked_up_where_the_config_has_its_cache(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[object] = []

    def choose(*args: object) -> Kernel:
        asked.extend(args)
        return Kernel("onednn", 2.0, 1e-6)

    monkeypatch.setattr(process, "choose_products", choose)
    config = {"products": "auto", "product_error": 1e-3, "data": {"cache_dir": str(tmp_path)}}
    assert prepare_process(config).endswith(
        "products: onednn (2.0 x the default's speed, relative error 1e-06)"
    )
    assert asked == ["auto", 1e-3, tmp_path]
    assert products_in_use() == "onednn"


def stored(folder: Path) -> list[str]:
    config = yaml.safe_load((folder / "config.yaml").read_text())
    return [
        config["products"],
        Checkpoint.load(folder / "checkpoints" / "best.ckpt").config["products"],
    ]


@pytest.mark.usefixtures("fast_onednn")
def test_a_run_keeps_its_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = train(tmp_path / "run", *listops("trainer.max_epochs=1"))
    assert "threads: 1, products: onednn (2.0 x" in capsys.readouterr().out
    assert stored(folder) == ["onednn", "onednn"]
    use_products("default")
    assert run("evaluate", folder, "--json", tmp_path / "e.json") == 0
    assert products_in_use() == "onednn"
    assert read_json(tmp_path / "e.json") == read_json(folder / "metrics.json")
    use_products("default")
    assert run("train", f"resume={folder}") == 0
    assert products_in_use() == "onednn"


@pytest.mark.usefixtures("fast_onednn")
def test_a_deterministic_run_takes_the_default_kernel(tmp_path: Path) -> None:
    folder = train(tmp_path / "run", *listops("deterministic=true", "trainer.max_epochs=1"))
    torch.use_deterministic_algorithms(False)
    assert stored(folder) == ["default", "default"]


def test_another_machine_says_that_it_lacks_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = train(tmp_path / "run", *listops("trainer.max_epochs=1", "products=onednn"))
    rounding = [Kernel("default", 1.0, 5e-7), Kernel("onednn", 4.0, 2e-3)]
    monkeypatch.setattr(product_choice, "probe_kernels", lambda: rounding)
    monkeypatch.setattr(product_choice, "_machine", lambda: {"cpu": "another"})
    assert run("evaluate", folder) == 0
    assert (
        "products=onednn: this kernel has a relative error of 2e-03 here" in capsys.readouterr().err
    )
    assert products_in_use() == "default"


def test_an_unknown_kernel_is_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "products=onedn") == 2
    assert "products is 'onedn', but it is one of auto, default, onednn." in capsys.readouterr().err


def test_a_process_that_trains_with_this_one_takes_its_kernel() -> None:
    use_products("onednn")
    parcel = pickle.dumps(Loaders(DataModule(corpus="sst"), {}))
    use_products("default")
    pickle.loads(parcel)
    assert products_in_use() == "onednn"


FAULTS = """
import resource, torch
{setting}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
print(min(faults() for _ in range(40)))
"""


@pytest.mark.skipif(
    os.name != "posix" or not hasattr(ctypes.CDLL(None), "mallopt"),
    reason="only glibc can be told to keep memory",
)
def test_freed_memory_is_used_again_without_page_faults() -> None:
    def faults(setting: str) -> int:
        code = FAULTS.format(setting=setting)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
        command = [sys.executable, "-c", code]
        return int(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)

    kept = faults("from graphfold.training.process.process import keep_memory; keep_memory()")
    assert kept < faults("") / 2
