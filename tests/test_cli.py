"""The command line: exit codes, one readable message, and the likely spelling."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

from graphfold import cli
from graphfold.cli import main

WRONG_USE = {
    "": r"the following arguments are required: COMMAND",
    "trian": r"no command 'trian'\. Did you mean 'train'\?",
    "train --multrun": r"no option '--multrun'\. Did you mean '--multirun'\?",
    "train --cfg jobs": r"no choice 'jobs'\. Did you mean 'job'\?",
    "train --config-dir /nowhere": r"/nowhere: no such folder",
    "train nonsense": r"override 'nonsense' cannot be read\. Write KEY=VALUE",
    "train data.target_columns=[a": r"cannot be read.*quote a value",
    "train experiment=esol_gnc": r"no experiment 'esol_gnc'\. Did you mean 'esol_gcn'\?",
    "train ~trainer.devices": r"there is no key 'trainer\.devices' in the config",
    "train ~lr_scheduler=nan": r"no lr_scheduler 'nan'",
    "train model=gcm": r"no model 'gcm'\. Did you mean 'gcn'\?",
    "train optimiser=adam": r"no key 'optimiser'.*Did you mean 'optimizer'\?",
    "train data.batch_sise=3": r"no key 'data\.batch_sise'.*Did you mean 'data\.batch_size'\?",
    "train batch_size=3": r"no key 'batch_size'.*Did you mean 'data\.batch_size'\?",
    "train hydra.run.dri=x": r"Did you mean 'hydra\.run\.dir'\?",
    "train data.split=randm": r"Did you mean 'random'\?",
    "train data.batch_size=2.5": r"data\.batch_size is 2\.5, but it must be a whole number",
    "train seed=1,2": r"gives several values\. Add -m",
    "train callbacks.early_stopping=default": r"Write callbacks=early_stopping\.",
    "train model.head=regression": r"model\.head is 'regression', but it is a class with its",
    "train optimizer.lr=fast": r"optimizer\.lr is 'fast', but it must be a number",
    "train optimizer._target_=torch.optim.Adm": r"torch\.optim has no 'Adm'\. Did you mean",
    "train +optimizer.lrr=1": r"optimizer \(Adam\) has no option 'lrr'\. Did you mean 'lr'\?",
    "train +data.train_sice=1": r"no option 'train_sice'\. Did you mean 'train_size'\?",
    "train trainer.precision=33": r"trainer\.precision is 33",
    "train data=smiles": r"data\.path has no value[\s\S]*data\.target_columns has no value",
    "train data=smiles data.path=/nowhere.csv data.target_columns=[a]": r"e\.csv: no such file",
    "train data=esol data.directed_bond=true": r"Did you mean 'data\.directed_bonds'\?",
    "train data=sst model=dmpnn": r"directed_bonds=true, but the brackets adapter has no",
    "train data=esol model=dmpnn data.directed_bonds=false": r"dmpnn needs .* not false",
    "train init_from=/nowhere": r"/nowhere: no such run folder or checkpoint",
    "train resume=/nowhere": r"/nowhere: not a run folder",
    "train resume=/nowhere seed=2": r"resume takes no 'seed': .* but for trainer\.max_epochs",
    "train -m resume=a,b": r"-m starts new runs",
    "train data=esol data.root=/nowhere": r"/nowhere/esol/delaney-processed.csv: no such file",
    "evaluate": r"the following arguments are required: RUN",
    "evaluate a b": r"'b' is one argument too many",
    "evaluate /nowhere": r"/nowhere: no such run folder or checkpoint",
    "evaluate run --split tset": r"no choice 'tset'\. Did you mean 'test'\?",
    "evaluate run --batch-size 0": r"'0' is not a whole number from 1 on",
    "evaluate run --json /nowhere/x.json": r"the folder /nowhere does not exist",
    "predict /nowhere x.csv": r"/nowhere: no such run folder or checkpoint",
    "predict run x.csv --output /nowhere/y.csv": r"the folder /nowhere does not exist",
    "check-adapter nothing --data x": r"there is no corpus or adapter 'nothing'",
    "check-adapter smiles": r"needs a file to read",
    "check-adapter smiles --set smiles_column": r"override 'smiles_column' cannot be read",
    "verify a b": r"'b' is one RUN too many",
    "list more": r"'more' is one argument too many",
}


@pytest.mark.parametrize("words", WRONG_USE)
def test_wrong_use(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    captured = capsys.readouterr()
    # A training says what it is made of before it looks at the data.
    assert re.fullmatch(r"((experiment=\S+ )?data=\S+ model=\S+\n)?", captured.out)
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err
    assert re.search(WRONG_USE[words], captured.err), captured.err


#: Wrong values of options of training, and what is said of them.
WRONG_VALUES = {
    "trainer.max_epochs=abc": r"trainer\.max_epochs is 'abc', but it must be a whole number",
    "data.batch_size=-1": r"data\.batch_size is -1, but it must be a whole number from 1 on",
    "data.on_error=ignore": r"data\.on_error is 'ignore', but it is one of raise, skip",
    "loss.reduction=per_nodes": r"Did you mean 'per_node'\?",
    "deterministic=maybe": r"deterministic is 'maybe', but it must be true or false",
    "seed=-1": r"seed is -1",
}


def test_all_wrong_values_are_reported_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *WRONG_VALUES]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == len(WRONG_VALUES) + 1  # data.seed is the seed, too
    for message in WRONG_VALUES.values():
        assert re.search(message, error), message


@pytest.mark.parametrize("words", [["--help"], ["train", "--help"], ["list"], ["--version"]])
def test_information_is_exit_code_0(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.out
    assert captured.err == ""


def test_help_names_all_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in cli.COMMANDS)


def test_list_names_each_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    for name in ("listops_tree_lstm", "bbbp", "brackets", "gcn"):
        assert f"  {name} " in text


def test_debug_shows_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "/nowhere", "--debug"]) == 2
    assert main(["--debug", "evaluate", "/nowhere"]) == 2
    assert capsys.readouterr().err.count("Traceback") == 2


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (KeyboardInterrupt(), "interrupted"),
        (MemoryError(), "out of memory"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero. Add --debug"),
    ],
)
def test_failure_is_exit_code_1(
    error: BaseException,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_: object) -> int:
        raise error

    monkeypatch.setattr(cli.listing, "run", fail)
    assert main(["list"]) == 1
    assert message in capsys.readouterr().err


def test_cfg_shows_the_config_and_does_no_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "experiment=esol_gcn", "seed=7", "--cfg", "job"]) == 0
    text = capsys.readouterr().out
    assert "seed: 7" in text
    assert "hydra:" not in text
    assert "${model.hidden_size}" in text
    assert main(["train", "--cfg", "job", "--resolve"]) == 0
    assert "${" not in capsys.readouterr().out
    assert main(["train", "--cfg", "all"]) == 0
    assert "hydra:" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_config_dir_adds_a_group_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "optimizer").mkdir()
    text = "_target_: torch.optim.RMSprop\n_partial_: true\nlr: 0.25\n"
    (tmp_path / "optimizer" / "mine.yaml").write_text(text)
    assert main(["train", "--config-dir", str(tmp_path), "optimizer=mine", "--cfg", "job"]) == 0
    assert "torch.optim.RMSprop" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["train", "evaluate", "predict"])
def test_script_is_the_command(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Path(__file__).parents[1] / "scripts" / f"{name}.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    with pytest.raises(SystemExit, match="^0$"):
        runpy.run_path(str(script), run_name="__main__")
    assert f"graphfold {name}" in capsys.readouterr().out
