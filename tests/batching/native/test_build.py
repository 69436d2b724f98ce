"""Native libraries: building, names that hold a hash of the sources, compilers."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from packaging import tags

from graphfold.batching.native import build as module
from graphfold.batching.native.build import (
    FLAGS,
    FOLDER,
    INSTRUCTION_SETS,
    PLAIN,
    SOURCES,
    TARGETS,
    BuildError,
    Target,
    build,
    is_whole,
    library_name,
    remove_old,
    this_machine,
)

needs_compiler = pytest.mark.skipif(module.compiler() is None, reason="there is no C compiler")
is_x86 = platform.machine() in ("x86_64", "AMD64")


@pytest.fixture
def quickly(monkeypatch):
    """Libraries are built without optimisation, which takes most of the time."""
    flags = tuple("-O0" if flag.startswith("-O") else flag for flag in FLAGS)
    monkeypatch.setattr(module, "FLAGS", flags)


def fake_compiler(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_all_sources_are_named():
    assert {path.name for path in FOLDER.glob("*.[ch]")} == set(SOURCES)


def test_it_needs_neither_torch_nor_graphfold():
    code = f"import runpy, sys; runpy.run_path({str(FOLDER / 'build.py')!r}); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "graphfold", "numpy"} & set(done.stdout.split())


def test_names_tell_what_a_library_is_made_of(tmp_path, monkeypatch):
    names = {library_name(real, i) for real in module.REALS for i in (*INSTRUCTION_SETS, PLAIN)}
    assert len(names) == 6
    assert library_name("float", "DEFAULT") == library_name("float", PLAIN)
    before = library_name("float", "AVX2")
    monkeypatch.setattr(module, "FLAGS", (*FLAGS, "-g"))
    assert library_name("float", "AVX2") != before
    monkeypatch.undo()
    for source in SOURCES:
        shutil.copy(FOLDER / source, tmp_path)
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    assert library_name("float", "AVX2") == before
    with (tmp_path / SOURCES[0]).open("a") as file:
        file.write("\n")
    assert library_name("float", "AVX2") != before


def test_targets_are_named_as_pip_and_python_name_them():
    x86, other = {"AVX512", "AVX2"}, {PLAIN}
    assert {tag: (t.system, t.machine, set(t.instruction_sets)) for tag, t in TARGETS.items()} == {
        "manylinux2014_x86_64": ("Linux", "x86_64", x86),
        "manylinux2014_aarch64": ("Linux", "aarch64", other),
        "macosx_11_0_arm64": ("Darwin", "arm64", other),
        "win_amd64": ("Windows", "AMD64", x86),
    }
    assert "macosx_11_0_arm64" in tags.mac_platforms((14, 0), "arm64")


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_machine_asks_for_the_libraries_of_its_wheel(target, monkeypatch):
    shipped = {
        library_name(real, i, target) for real in module.REALS for i in target.instruction_sets
    }
    monkeypatch.setattr(platform, "system", lambda: target.system)
    monkeypatch.setattr(platform, "machine", lambda: target.machine)
    here = this_machine()
    assert target.can_run_here
    assert here.instruction_sets == target.instruction_sets
    assert {
        library_name(real, i) for real in module.REALS for i in here.instruction_sets
    } == shipped


ELSEWHERE = Target("Windows", "ARM64", "win_arm64", "aarch64-windows-gnu")


def test_a_library_for_another_machine_is_not_loaded(tmp_path, monkeypatch):
    library = "head -c 64 /dev/urandom >"
    script = f'echo "$@" >{tmp_path}/called; for last; do :; done; {library}"$last"'
    monkeypatch.setenv("CC", fake_compiler(tmp_path / "zig", script))
    path = build("float", PLAIN, tmp_path / "made", ELSEWHERE)
    assert path.name.startswith("pass-float-windows-arm64-plain-")
    called = (tmp_path / "called").read_text()
    assert "-target aarch64-windows-gnu -s -mllvm" in called
    fake_compiler(tmp_path / "zig", "exit 0")
    with pytest.raises(
        BuildError, match="it has written no library; name 'zig cc', which compiles"
    ):
        build("float", PLAIN, tmp_path / "made", ELSEWHERE)


def test_zig_spells_instruction_sets_in_its_own_way():
    assert "-march=x86_64_v3" in TARGETS["win_amd64"].options("AVX2")
    assert "-march=x86-64-v3" in this_machine().options("AVX2")


@needs_compiler
@pytest.mark.usefixtures("quickly")
def test_a_library_has_what_is_called(tmp_path):
    path = build("float", PLAIN, tmp_path)
    assert path == tmp_path / library_name("float", PLAIN)
    assert list(tmp_path.iterdir()) == [path]
    library = ctypes.CDLL(str(path))
    assert all(getattr(library, name) for name in module.FUNCTIONS)
    assert path.stat().st_mode & 0o777 == 0o644
    if shutil.which("ldd") is not None:
        done = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=True)
        assert "libc" in done.stdout
        assert not re.search("gomp|iomp|libomp", done.stdout), "it needs a library of threads"


@needs_compiler
@pytest.mark.usefixtures("quickly")
def test_two_at_once_do_not_disturb_each_other(tmp_path):
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(build, "float", PLAIN, tmp_path) for _ in range(2)]
    assert {one.result() for one in made} == {tmp_path / library_name("float", PLAIN)}
    assert is_whole(tmp_path / library_name("float", PLAIN))
    assert len(list(tmp_path.iterdir())) == 1


@needs_compiler
@pytest.mark.usefixtures("quickly")
def test_a_failed_build_leaves_the_old_library(tmp_path, monkeypatch):
    name = library_name("float", PLAIN)
    (tmp_path / name).write_bytes(b"before")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            build("float", PLAIN, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_bytes() == b"before"
    build("float", PLAIN, tmp_path)
    assert is_whole(tmp_path / name)


@needs_compiler
@pytest.mark.usefixtures("quickly")
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is about ELF files")
def test_a_truncated_library_is_not_whole(tmp_path):
    content = build("float", PLAIN, tmp_path).read_bytes()
    path = tmp_path / "copy.so"  # the library itself is loaded in this process
    path.write_bytes(content)
    assert is_whole(path)
    for size in (0, 3, 40, 4096, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:size])
        assert not is_whole(path), size
    path.write_bytes(bytes(len(content)))
    assert not is_whole(path)
    assert not is_whole(tmp_path / "nowhere")
    assert not is_whole(tmp_path)


def test_old_libraries_are_removed(tmp_path):
    current = library_name("double", "AVX2")
    old = [
        "pass-float-linux-x86_64-avx2-0123456789abcdef.so",
        "pass-double-darwin-arm64-plain-0123456789abcdef.so",
        "pass-float-linux-x86_64-avx2-0123456789abcdef.so.a_b1.part",
    ]
    others = ["notes.txt", "pass-float.so", "pass-float-x-0123456789abcdef.so.txt"]
    recent = "pass-float-linux-x86_64-avx2-0123456789abcde0.so"
    for name in (current, *old, *others, recent):
        (tmp_path / name).write_bytes(b"")
        age = 0 if name == recent else 31 * 24 * 3600
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    remove_old(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {current, *others, recent}


WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unused-function", "-Werror"]


@pytest.mark.slow
@pytest.mark.parametrize("real", module.REALS)
@pytest.mark.parametrize("march", ["x86-64-v4", "x86-64-v3", "x86-64"])
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_compilers_have_nothing_to_warn_of(compiler, march, real, tmp_path):
    if shutil.which(compiler) is None or not is_x86:
        pytest.skip(f"there is no {compiler} for x86")
    defined = [f"-Dreal={real}", *(["-DIS_DOUBLE"] if real == "double" else [])]
    files = [str(FOLDER / "pass.c"), "-lm", "-o", str(tmp_path / "pass.so")]
    command = [compiler, *FLAGS, f"-march={march}", *WARNINGS, *defined, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_messages_of_the_compiler_are_passed_on(tmp_path, monkeypatch):
    script = "echo 'In file included from here' >&2; echo 'x.c:1: error: no C' >&2; exit 1"
    monkeypatch.setenv("CC", fake_compiler(tmp_path / "compiler", script))
    with pytest.raises(BuildError, match="compiler failed: x.c:1: error: no C; name another C c"):
        build("float", PLAIN, tmp_path)
    fake_compiler(tmp_path / "compiler", "exit 1")
    with pytest.raises(BuildError, match="compiler failed: no message"):
        build("float", PLAIN, tmp_path)
    fake_compiler(tmp_path / "compiler", "exit 0")  # and no library
    with pytest.raises(BuildError, match=r"compiler failed: .*\.so"):
        build("float", PLAIN, tmp_path)


def test_a_compiler_that_cannot_be_run(tmp_path, monkeypatch):
    (tmp_path / "compiler").write_text("no program")
    (tmp_path / "compiler").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "compiler"))
    with pytest.raises(BuildError, match="could not be run: .*; name another C compiler"):
        build("float", PLAIN, tmp_path)


def test_which_compiler(tmp_path, monkeypatch):
    for name in ("gcc", "clang"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert module.compiler() == ["gcc"]
    monkeypatch.setenv("CC", "clang -m64")
    assert module.compiler() == ["clang", "-m64"]
    monkeypatch.setenv("CC", "/nonexistent")
    assert module.compiler() is None
    with pytest.raises(
        BuildError, match="found: there is no '/nonexistent', which the .* variable CC"
    ):
        build("float", PLAIN, tmp_path)
    monkeypatch.setenv("CC", "")
    assert module.compiler() == ["gcc"]
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(BuildError, match="no C compiler was found; install one .* variable CC"):
        build("float", PLAIN, tmp_path)
