"""The C compiler of this machine, and what is said where there is none that works."""

from __future__ import annotations

import os
import subprocess

import pytest
import torch

from graphfold.batching.kernels import c_compiler
from graphfold.batching.kernels.c_compiler import compile_c, declare, find_compiler
from graphfold.errors import EngineError

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")

SOURCE = "#include <stdint.h>\nvoid kernel(int64_t *to, int64_t a) { *to = a + 1; }\n"


def test_addresses_and_whole_numbers_keep_all_their_bits(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    to = torch.zeros(1, dtype=torch.int64)
    declare(compile_c(SOURCE), "kernel", "pi")(to.data_ptr(), 2**40)
    assert to.item() == 2**40 + 1
    assert not any(tmp_path.iterdir())


def test_without_openmp(tmp_path, monkeypatch):
    script = tmp_path / "compiler"
    real = find_compiler()
    assert real is not None
    script.write_text(
        '#!/bin/sh\ncase " $* " in *" -fopenmp "*) echo no OpenMP >&2; exit 1;; esac\n'
        f'exec {real[0]} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    to = torch.zeros(1, dtype=torch.int64)
    declare(compile_c(SOURCE), "kernel", "pi")(to.data_ptr(), 2)
    assert to.item() == 3


def test_openmp_without_a_library():
    needs = "#ifdef _OPENMP\nvoid nowhere(void);\nvoid call(void) { nowhere(); }\n#endif\n"
    to = torch.zeros(1, dtype=torch.int64)
    declare(compile_c(needs + SOURCE), "kernel", "pi")(to.data_ptr(), 2)
    assert to.item() == 3


def test_what_cannot_be_loaded_is_said():
    with pytest.raises(EngineError, match="failed: .*nowhere"):
        compile_c("void nowhere(void);\nvoid kernel(void) { nowhere(); }\n")


def test_what_a_compiler_says_is_passed_on(tmp_path, monkeypatch):
    with pytest.raises(EngineError, match="failed: .*kernel.c.*error"):
        compile_c("no C")
    monkeypatch.setattr(
        c_compiler, "_run", lambda command: subprocess.CompletedProcess(command, 1, "", "")
    )
    with pytest.raises(EngineError, match="failed: no message"):
        compile_c(SOURCE)


def test_a_compiler_that_cannot_be_run(tmp_path, monkeypatch):
    script = tmp_path / "compiler"
    script.write_text("no program")
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    with pytest.raises(EngineError, match="compiler could not be run: "):
        compile_c(SOURCE)


def test_which_compiler(tmp_path, monkeypatch):
    for name in ("gcc", "clang"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert find_compiler() == ["gcc"]
    monkeypatch.setenv("CC", "clang -m64")
    assert find_compiler() == ["clang", "-m64"]
    monkeypatch.setenv("CC", os.devnull)
    assert find_compiler() == ["gcc"]
    monkeypatch.setenv("PATH", "")
    assert find_compiler() is None


@pytest.mark.parametrize(
    ("kept_to", "march"), [("avx2", "x86-64-v3"), ("avx512", "x86-64-v4"), ("", "native")]
)
def test_kernels_are_kept_to_the_instructions_of_torch(kept_to, march, monkeypatch):
    commands = []

    def run(command):
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, "", "")

    monkeypatch.setattr(c_compiler, "_run", run)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", kept_to)
    with pytest.raises(EngineError):
        compile_c(SOURCE)
    assert f"-march={march}" in commands[0]
