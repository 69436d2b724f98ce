"""The script that counts which small faults the tests notice."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from load_script import load_script

SOURCE = '''
"""Text + text."""
def f(a: int | None, b=True):
    """1 + 1"""
    if a > 2 and b:
        print(f"{a + 1}")
    return a + 1 if a else -a
'''


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    module = load_script("mutants", monkeypatch)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    (tmp_path / "graphfold").mkdir()
    (tmp_path / "graphfold" / "__init__.py").touch()
    (tmp_path / "graphfold" / "f.py").write_text(SOURCE)
    return module


def test_each_mutant_differs_in_one_place_and_can_be_run(script):
    found = {m.after: text for m, text in script.mutants_of(script.ROOT / "graphfold" / "f.py")}
    assert found.keys() == {
        *("False", "(a > 2 or b)", "(a >= 2)", "3", "pass", "(a - 1)", "2"),
        "(a + 1 if not a else -a)",
    }
    for after, text in found.items():
        ast.parse(text)
        assert text.count(after) == SOURCE.count(after) + 1
        assert len(text.splitlines()) == len(SOURCE.splitlines())


def test_a_mutant_is_killed_by_a_test_that_fails(script, monkeypatch, tmp_path):
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_f.py").write_text("from graphfold.f import f\ndef test_f(): assert f(3) == 4\n")
    monkeypatch.setenv("TMPDIR", str(tmp_path.parent))
    found = {m.after: (m, t) for m, t in script.mutants_of(tmp_path / "graphfold" / "f.py")}
    ends = {after: script.run(*found[after], ["tests"], 0) for after in ("(a - 1)", "(a >= 2)")}
    assert ends == {
        "(a - 1)": ("killed", "tests/test_f.py::test_f"),
        "(a >= 2)": ("survived", ""),
    }


def test_the_nearest_tests_come_first_and_may_be_all(script, tmp_path):
    (tmp_path / "graphfold" / "a").mkdir()
    (tmp_path / "graphfold" / "a" / "g.py").write_text("x = 1 + 1\n")
    for name, text in {
        "a/test_other.py": "import x",
        "a/test_g.py": "import graphfold",
        "test_far.py": "from graphfold.a.g import x",
        "test_package.py": "from graphfold.a import f, g",
        "test_gg.py": "import graphfold.a.gg",
    }.items():
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).write_text(text)
    mutant, _ = next(script.mutants_of(tmp_path / "graphfold" / "a" / "g.py"))
    near = [
        ["tests/a/test_g.py", "tests/test_far.py", "tests/test_package.py"],
        ["tests/a/test_other.py"],
    ]
    assert script.tests_of(mutant, ["tests"], is_near=True) == near
    assert script.tests_of(mutant, ["tests"], is_near=False) == [*near, ["tests"]]
