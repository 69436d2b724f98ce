"""`graphfold doctor` says what a run depends on and what is wrong, and empties the cache."""

from __future__ import annotations

import platform
import shutil
import subprocess
from collections import namedtuple
from pathlib import Path

import pytest
import torch

from graphfold.batching.native import build, library
from graphfold.cli import main
from graphfold.datasets.storage.cache import size_of
from graphfold.training.process import doctor


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with a stored copy of 1.5 MB and a corpus, and a data root with one folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GRAPHFOLD_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("GRAPHFOLD_CACHE_GB", "2")
    (tmp_path / "graphfold" / "listops").mkdir(parents=True)
    (tmp_path / "graphfold" / "a.graphs").write_bytes(b"0" * 1_500_000)
    (tmp_path / "graphfold" / "listops" / "train.tsv").write_bytes(b"0" * 200_000)
    (tmp_path / "data" / "esol").mkdir(parents=True)
    return tmp_path


def fact(name: str) -> doctor.Fact:
    """One of all facts."""
    return next(fact for fact in doctor.facts() if fact.name == name)


def test_facts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    *lines, blank, verdict = capsys.readouterr().out.splitlines()
    assert (blank, verdict) == ("", "nothing is wrong")
    facts = {name: value.strip() for name, value in (line.split("  ", 1) for line in lines)}
    assert facts["python"].startswith(platform.python_version())
    assert facts["torch"] == torch.__version__
    assert facts["instruction set"] == torch.backends.cpu.get_cpu_capability()
    assert "CUDA" in facts["torch build"]
    assert facts["native library"].startswith("works, ")
    assert facts["threads"] == f"{torch.get_num_threads()} of torch"
    native = folder / "graphfold" / "native"  # the native library, if it was compiled now
    size = size_of(native) / 1e6 if native.exists() else 0
    assert facts["cache"].endswith(
        f" items: packed data 1.5 MB, at most 2,000.0 MB; native libraries {size:,.1f} MB; "
        "corpora and others 0.2 MB)"
    )
    assert facts["data root"] == f"{folder / 'data'} (1 folder)"


def test_a_fault_is_told_with_its_remedy_and_the_exit_code(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHFOLD_DATA", str(folder / "dta"))
    monkeypatch.setenv("GRAPHFOLD_CACHE_GB", "many")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert out.endswith(
        "\n2 faults\n"
        "- cache: the variable GRAPHFOLD_CACHE_GB is 'many', but it is a number of gigabytes. "
        "Correct it, or leave it out for 5.\n"
        "- data root: the environment variable GRAPHFOLD_DATA names no folder. Correct it or unset "
        "it.\n"
    )


def test_a_library_of_another_version_is_a_fault(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = ["torch>=99,<100", "numpy>=1", "No.Such_One>=2", "pandas>=99; extra == 'other'"]
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: needs)
    faults = {fact.name: fact.fault for fact in doctor.facts() if fact.fault}
    assert faults == {
        "torch": "graphfold needs torch<100,>=99. pip install 'torch<100,>=99'",
        "no-such-one": "graphfold needs No.Such_One>=2. pip install 'No.Such_One>=2'",
    }


def test_more_threads_than_cores_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(doctor, "available_cores", lambda: 2)
    monkeypatch.setattr(doctor.os, "getloadavg", lambda: (0.5, 0.0, 0.0))
    assert fact("cores").value == "2 for this process, 1.5 of them free in the last minute"
    assert "OMP_NUM_THREADS=2" in fact("threads").fault


@pytest.mark.parametrize(
    ("cuda", "fault"),
    [
        (None, "there is an NVIDIA GPU, but this torch is built for CPUs alone"),
        ("12.9", "torch with CUDA 12.9 cannot use it. Update the driver"),
    ],
)
def test_a_gpu_that_torch_cannot_use_is_a_fault(
    cuda: str | None, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setattr(doctor, "_has_nvidia_device", lambda: True)
    assert fault in fact("GPU").fault
    monkeypatch.setattr(doctor, "_has_nvidia_device", lambda: False)
    assert fact("GPU") == doctor.Fact("GPU", "none")


def test_a_gpu_that_is_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda number: f"card {number}")
    assert fact("GPU") == doctor.Fact("GPU", "card 0, card 1")


def test_without_a_native_library_the_reason_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "why_missing", lambda _: "no C compiler was found; install one")
    assert fact("native library").fault.startswith("no C compiler was found; install one. Until")
    monkeypatch.setenv("CC", "no-such-compiler")
    assert "there is no 'no-such-compiler'" in fact("C compiler").fault


@pytest.mark.skipif(build.compiler() is None, reason="there is no C compiler")
def test_what_built_the_native_library_is_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = build.library_name("float", library.instruction_set())
    native = folder / "graphfold" / "native"
    native.mkdir()
    command = build.compiler()
    assert command is not None
    (folder / "empty.c").write_text("int nothing;\n")
    subprocess.run([*command, "-shared", folder / "empty.c", "-o", native / name], check=True)
    monkeypatch.setattr(library, "why_missing", lambda _: None)
    monkeypatch.setattr(doctor, "FOLDER", folder / "wheel")
    version = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
    told = fact("native library").value
    assert told.startswith(f"works, {native / name}, built on this machine by ")
    assert told.split()[-1] in version.stdout  # the number of the version


def test_a_full_disk_and_a_folder_that_cannot_be_written_to_are_faults(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10**12, 10**12, 3 * 10**6))
    assert fact("cache").fault.startswith("only 3.0 MB are free on its disk.")
    (folder / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "file"))
    assert "nothing can be written there" in fact("cache").fault


def test_clear_cache(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--clear-cache"]) == 0
    assert capsys.readouterr().out == f"{folder / 'graphfold'}: 1.7 MB freed\n"
    assert list((folder / "graphfold").iterdir()) == []


def test_overrides_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "seed=1"]) == 2
    assert "seed=1" in capsys.readouterr().err
