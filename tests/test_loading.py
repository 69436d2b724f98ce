"""What commands load is loaded without Python's collector, which is then as it was."""

from __future__ import annotations

import gc
import importlib
import subprocess
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


def test_what_is_loaded_first_is_passed_over_from_then_on():
    code = (
        "import gc\n"
        "from graphfold.commands.loading import loading\n"
        "with loading():\n"
        "    import torch\n"
        "print(gc.get_freeze_count(), gc.isenabled())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, is_enabled = found.stdout.split()
    assert int(count) > 10_000
    assert is_enabled == "True"


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
