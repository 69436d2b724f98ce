"""What commands load is loaded without Python's collector, which is then as it was."""

from __future__ import annotations

import gc
import importlib
import sys

import pytest

from graphfold.commands.loading import loading


@pytest.mark.parametrize("was_enabled", [True, False])
def test_the_collector_is_off_within_and_as_before_afterwards(was_enabled):
    frozen = gc.get_freeze_count()
    try:
        (gc.enable if was_enabled else gc.disable)()
        with loading():
            assert not gc.isenabled()
        assert gc.isenabled() is was_enabled
    finally:
        gc.enable()
    assert gc.get_freeze_count() == frozen  # nothing had to be loaded


def test_a_part_without_its_library_says_what_to_install(monkeypatch):
    library, message = "sklearn", "graphfold.sklearn needs scikit-learn 1.6 or newer"
    for name in [name for name in sys.modules if name.startswith(f"{library}.")]:
        monkeypatch.delitem(sys.modules, name)  # an earlier test has loaded it
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.delitem(sys.modules, f"graphfold.{library}", raising=False)
    with pytest.raises(ImportError) as error:
        importlib.import_module(f"graphfold.{library}")
    assert str(error.value).startswith(message)
    assert str(error.value).endswith(f"Install it: pip install 'graphfold[{library}]'")
