"""Options that several sub-commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from graphfold.options import is_address

#: The beginning of what --set takes; the path of a run with an = in it has a / before.
_SETTING = re.compile(r"[A-Za-z_][\w.]*=")


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The option --set, which gives `settings`."""
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="options of the adapter or of data, one or several, read as Hydra does",
    )


def spread_settings(words: Sequence[str]) -> list[str]:
    """Writes `--set A=1 B=2` as `--set A=1 --set B=2`, so that RUN may stand behind them."""
    spread: list[str] = []
    for word in words:
        if spread[-2:-1] == ["--set"] and _SETTING.match(word):
            spread.append("--set")
        spread.append(word)
    return spread


def add_trust(parser: argparse.ArgumentParser) -> None:
    """The option --trust, which gives `trust`; packages in the overrides of the user need none."""
    parser.add_argument(
        "--trust",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="import this third-party package, which a stored run names; may be repeated",
    )


def add_config_dir(parser: argparse.ArgumentParser) -> None:
    """The option --config-dir, which gives `config_dir`."""
    parser.add_argument(
        *("--config-dir", "-cd"),
        type=local_path,
        metavar="DIR",
        help="a further folder of config files",
    )


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of all commands that apply a run: RUN, --set, --batch-size, --trust."""
    parser.add_argument(
        "run_path", metavar="RUN", type=local_path, help="run folder or checkpoint file"
    )
    add_settings(parser)
    parser.add_argument("--batch-size", type=positive, metavar="N", help="examples per batch")
    add_trust(parser)


def settings_of(args: argparse.Namespace) -> list[str]:
    """The KEY=VALUE of `data` among the options of `add_run_arguments`; the last one counts."""
    size = [] if args.batch_size is None else [f"batch_size={args.batch_size}"]
    return [*args.settings, *size]


def local_path(text: str) -> Path:
    """A path on this machine."""
    if is_address(text):
        raise argparse.ArgumentTypeError(
            f"it is '{text}', but it must be a path on this machine (no address)"
        )
    return Path(text)


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1 on")
    return int(text)
