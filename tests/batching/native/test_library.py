"""Native libraries: loaded, built where they are missing, replaced by torch if building fails."""

from __future__ import annotations

import _ctypes
import ctypes
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from graphfold.batching import Batch, Network, Up, build_schedule
from graphfold.batching.engine.compiled import choice
from graphfold.batching.native import build as builder
from graphfold.batching.native import library as module
from graphfold.batching.native.build import is_whole, library_name
from graphfold.batching.native.library import cache_folder, instruction_set, load, why_missing
from graphfold.dag import GraphBuilder, NodeType, Schema
from graphfold.errors import EngineError
from graphfold.layers import LeafCell, TreeRNNCell

needs_compiler = pytest.mark.skipif(builder.compiler() is None, reason="there is no C compiler")
NAME = library_name("float", instruction_set())


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, nothing loaded, and nothing beside the sources."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "FOLDER", tmp_path / "nowhere")
    monkeypatch.setattr(choice, "_SAID", set())
    load.cache_clear()
    why_missing.cache_clear()
    yield tmp_path / "cache" / "graphfold" / "native"
    load.cache_clear()
    why_missing.cache_clear()


def without_optimisation(patch: pytest.MonkeyPatch) -> None:
    """Has the compiler work a sixth as long."""
    patch.setattr(builder, "FLAGS", tuple(flag for flag in builder.FLAGS if flag != "-O3"))


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library, compiled once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        without_optimisation(patch)
        made = builder.build("float", instruction_set(), tmp_path_factory.mktemp("library"))
    return made.rename(made.with_name(NAME))


@pytest.fixture
def made(whole: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes the dtypes that are compiled; each build copies `whole`."""
    reals: list[str] = []

    def build(real: str, instructions: str, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        reals.append(real)
        new = Path(shutil.copy(whole, folder / "new"))
        return new.replace(folder / whole.name)

    monkeypatch.setattr(module, "build", build)
    return reals


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "/nonexistent")
    monkeypatch.setenv("PATH", "/nonexistent")


def again() -> str:
    """The file of the library, as a new process finds it."""
    load.cache_clear()
    return load(torch.float32)._name


@needs_compiler
def test_it_is_compiled_once(cache, made):
    assert why_missing(torch.float32) is None
    assert made == ["float"]
    assert [path.name for path in cache.iterdir()] == [NAME]
    assert again() == str(cache / NAME)
    assert made == ["float"]


@needs_compiler
def test_the_library_of_a_wheel_comes_first(cache, made, monkeypatch, tmp_path):
    load(torch.float32)
    (tmp_path / "beside").mkdir()
    (cache / NAME).rename(tmp_path / "beside" / NAME)
    monkeypatch.setattr(module, "FOLDER", tmp_path / "beside")
    assert again() == str(tmp_path / "beside" / NAME)
    assert made == ["float"]


@needs_compiler
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is about ELF files")
@pytest.mark.parametrize("content", [b"", b"no library", "half", "zeros", "another"])
def test_a_broken_library_is_made_again_once(content, cache, made, whole):
    good = whole.read_bytes()
    broken = {
        "half": good[: len(good) // 2],
        "zeros": bytes(len(good)),
        "another": Path(_ctypes.__file__).read_bytes(),  # a library, but of something else
    }
    cache.mkdir(parents=True)
    (cache / NAME).write_bytes(broken.get(content, content))
    path = again()
    assert made == ["float"]
    assert (cache / NAME).read_bytes() == good
    if content == "another":  # this process has loaded it, and goes on with a copy
        assert path != str(cache / NAME)
    else:
        assert path == again() == str(cache / NAME)
        assert made == ["float"]


@needs_compiler
@pytest.mark.parametrize("what", ["a file is there", "it is read-only", "there is no home"])
def test_without_a_cache_the_library_lasts_as_long_as_the_process(
    what, cache, made, monkeypatch, tmp_path
):
    if what == "a file is there":
        (tmp_path / "cache").write_text("")
    elif what == "it is read-only":
        build = module.build

        def deny(real: str, instructions: str, folder: Path) -> Path:
            if folder == cache:
                raise PermissionError(13, "Permission denied")
            return build(real, instructions, folder)

        monkeypatch.setattr(module, "build", deny)
    else:
        monkeypatch.delenv("XDG_CACHE_HOME")

        def home() -> Path:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(Path, "home", home)
        assert cache_folder() is None
    assert why_missing(torch.float32) is None
    path = load(torch.float32)._name
    assert os.path.isfile(path)
    assert not path.startswith(str(tmp_path / "cache"))
    assert made == ["float"]


@needs_compiler
@pytest.mark.parametrize("noexec", ["folder of temporary files", "cache"])
def test_a_folder_that_nothing_can_be_loaded_from(noexec, cache, whole, monkeypatch, tmp_path):
    """The loader refuses libraries on a file system that is mounted noexec."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    compiler = tmp_path / "compiler"
    compiler.write_text(f'#!/bin/sh\nfor last; do :; done\nexec cp {whole} "$last"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    forbidden, allowed = (temporary, cache) if noexec != "cache" else (cache, temporary)
    load_file = ctypes.CDLL

    def cdll(name: str) -> ctypes.CDLL:
        if Path(name).is_relative_to(forbidden):
            raise OSError(f"{name}: failed to map segment from shared object")
        return load_file(name)

    monkeypatch.setattr(ctypes, "CDLL", cdll)
    assert Path(load(torch.float32)._name).is_relative_to(allowed)
    assert not list(forbidden.glob("**/*.part"))


@needs_compiler
def test_old_libraries_go_when_a_new_one_comes(cache, made):
    cache.mkdir(parents=True)
    old = cache / re.sub(r"[0-9a-f]{16}", "0" * 16, NAME)
    old.write_bytes(b"")
    os.utime(old, (0, 0))
    load(torch.float32)
    assert [path.name for path in cache.iterdir()] == [NAME]


def test_other_dtypes_have_none(cache):
    assert why_missing(torch.float16) == (
        "native code computes float32 and float64, not torch.float16"
    )


SCHEMA = Schema(types=(NodeType("word", arity=0), NodeType("phrase", arity=2)))


def run(way: str, backend: str = "auto") -> tuple[Network, torch.Tensor]:
    builder = GraphBuilder(SCHEMA)
    one, other = builder.nodes("word", 2)
    builder.output(builder.node("phrase", [one, other]))
    builder.finish()
    dag = builder.build()
    torch.manual_seed(1)
    cells = [{"word": LeafCell(4, 3), "phrase": TreeRNNCell(0, 3)}]
    network = Network(SCHEMA, *zip([Up()], cells, strict=True), run=way, backend=backend)
    batch = Batch(dag, build_schedule(dag, network.passes))
    states = network(batch, {"word": torch.ones(2, 4), "phrase": torch.empty(1, 0)})
    return network, states["h"]


@pytest.mark.usefixtures("no_compiler")
@pytest.mark.parametrize("way", ["auto", "compiled"])
def test_without_compiler_and_library_torch_runs_the_programs(cache, way):
    message = (
        "(LeafCell|TreeRNNCell) do(es)? not run as native code: no C compiler was found: there is "
        r"no '/nonexistent', which the environment variable CC names; correct or unset it\. "
        "It runs as operations of"
    )
    with pytest.warns(UserWarning, match=message):
        network, actual = run(way)
    assert set(network.execution.values()) == {"compiled (torch)"}
    torch.testing.assert_close(run(way)[1], actual, rtol=0, atol=0)  # it warns once
    torch.testing.assert_close(actual, run("eager")[1])
    assert not cache.exists()


@pytest.mark.usefixtures("no_compiler", "cache")
def test_without_compiler_and_library_native_code_says_what_to_do():
    message = "backend=native cannot run: no C compiler was found: .* CC names; .* it. Use backend="
    with pytest.raises(EngineError, match=message):
        run("compiled", "native")


@needs_compiler
def test_with_a_compiler_cells_are_compiled(cache, monkeypatch):
    without_optimisation(monkeypatch)
    network, actual = run("compiled")
    assert set(network.execution.values()) == {"compiled (native)"}
    torch.testing.assert_close(actual, run("eager")[1])
    assert is_whole(cache / library_name("float", instruction_set()))
