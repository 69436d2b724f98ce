"""One registry for parts of every kind: names, dotted paths, what is wrong with them, packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from graphfold.errors import ConfigError
from graphfold.registry import CELLS, HEADS, Registry

TOOLS = Registry("tool", "tool=NAME", {"saw": "own_tools:Saw", "axe": "own_tools:Axe"})
MADE = Registry("tool", "tool=NAME", TOOLS.paths, base="own_tools:Tool")
VALUES = Registry("blade", "blade=NAME", home="own_tools", base="own_tools:Tool", is_instance=True)

SOURCE = '''
from abc import ABC, abstractmethod
class Tool(ABC):
    """Something to work with."""
    @abstractmethod
    def use(self): ...
class Saw(Tool):
    """Cuts wood.

    Slowly.
    """
    def use(self): ...
class Axe(Saw): ...
class Half(Tool): ...
class Stone: ...
blade = Saw()
_hidden = Saw()
'''


@pytest.fixture(autouse=True)
def own_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_tools.py").write_text(SOURCE)
    (tmp_path / "needs_more.py").write_text("import no_such_library\n")
    (tmp_path / "half_there.py").write_text("from own_tools import hammer\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("own_tools", "needs_more", "half_there"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_a_part_is_found_by_its_name_and_by_its_path():
    import own_tools  # type: ignore[import-not-found]

    assert MADE.find("saw") is own_tools.Saw
    assert MADE.find("own_tools.Axe") is MADE.find("own_tools:Axe") is own_tools.Axe


def test_a_home_has_its_public_parts_of_that_kind():
    assert VALUES.names() == {"blade": "own_tools:blade"}
    assert {"RegressionHead", "QuantileHead"} <= HEADS.names().keys()
    assert "GCNCell" in CELLS.names()
    assert not {"Head", "GCNCell"} & HEADS.names().keys()


@pytest.mark.parametrize(
    ("registry", "name", "message"),
    [
        (MADE, "sow", r"^there is no tool 'sow'. Did you mean 'saw'\? Use one of axe, saw, or the"),
        (MADE, "own_tools.Sow", r"^tool 'own_tools.Sow': own_tools has no 'Sow'. Did you mean 'Sa"),
        (MADE, "own_tools.Stone", "Stone does not derive from Tool. Name a class that derives fr"),
        (MADE, "own_tools.blade", "Saw does not derive from Tool"),
        (MADE, "own_tools.Half", "Half lacks use. Write them, or name a class that has them"),
        (TOOLS, "own_tools.blade", "a Saw is there. Name a function"),
        (VALUES, "own_tools.Saw", "no Tool is there, but Saw"),
        (MADE, "own_tool.Saw", "there is no module 'own_tool'. Correct the path, or install the"),
        (MADE, "own_tools.more.Saw", "there is no module 'own_tools.more'. Correct the path"),
        (MADE, "needs_more.Saw", "there is no module 'no_such_library'. Install 'no_such_libra"),
        (MADE, "half_there.Saw", "cannot import 'half_there' .cannot import name 'hammer'"),
        (MADE, "own tools.Saw", "'own tools.Saw' is no dotted path. Give one as package.modu"),
        (MADE, "own_tools.", "'own_tools.' is no dotted path"),
    ],
)
def test_a_wrong_name_is_told(registry, name, message):
    with pytest.raises(ConfigError, match=message):
        registry.find(name)


def test_a_message_names_the_setting():
    with pytest.raises(ConfigError, match="^data.split=own_tools.cut: own_tools has no 'cut'"):
        TOOLS.find("own_tools.cut", "data.split=own_tools.cut")


def test_the_package_of_a_name_is_that_out_of_graphfold():
    assert MADE.package("saw") == "own_tools"
    assert MADE.package("my.tools.Hammer") == "my"
    assert HEADS.package("graphfold.layers.RegressionHead") is None
    assert HEADS.package("RegressionHead") is None
    assert MADE.package("hammer") is None
