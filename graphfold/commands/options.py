"""Options that several sub-commands share."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphfold.options import is_address

if TYPE_CHECKING:
    from graphfold.inference.apply import Job

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
    """The option --trust, which gives `trust`; what the user's own words name needs none."""
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
    """The run, and the options of all that apply one: RUN, --set, --batch-size, --trust."""
    parser.add_argument(
        "run_path", metavar="RUN", type=local_path, help="run folder or checkpoint file"
    )
    add_settings(parser)
    parser.add_argument("--batch-size", type=positive, metavar="N", help="examples per batch")
    add_trust(parser)


def add_input(parser: argparse.ArgumentParser, several: bool = False) -> None:
    """The arguments INPUT of commands that apply a run to files, and --input-format.

    Of commands that take several also --shard, --engine and --workers.
    """
    help_text = "a file like those trained on; - is standard input"
    if several:
        help_text = (
            "files like those trained on, patterns such as 'new/*.csv', folders, addresses such as "
            "s3://bucket/new.csv; - is standard input"
        )
    nargs = "+" if several else None
    kind = place if several else local_path
    parser.add_argument("input", metavar="INPUT", type=kind, nargs=nargs, help=help_text)
    parser.set_defaults(shard=None, engine=None, workers=None)
    if several:
        parser.add_argument(
            "--shard",
            type=_shard,
            metavar="I/N",
            help="apply RUN to the inputs of job I of N jobs that share them, I from 1 to N",
        )
        parser.add_argument(
            "--engine",
            choices=["ray"],
            help="apply RUN to several inputs at once, on the cluster of RAY_ADDRESS or on the "
            "cores of this machine; needs pip install 'graphfold[ray]'",
        )
        parser.add_argument(
            "--workers",
            type=positive,
            metavar="N",
            help="with --engine: inputs that are worked on at once (default: one for each core)",
        )
    parser.add_argument(
        "--input-format",
        metavar="KIND",
        help="the kind of table where no name says it, such as csv, tsv, smi, sdf or parquet "
        "(default: the ending of the name; csv for a pipe)",
    )


def settings_of(args: argparse.Namespace) -> list[str]:
    """The KEY=VALUE of `data` that `add_run_arguments` has read; of two, the last one counts."""
    asked = [] if args.batch_size is None else [f"batch_size={args.batch_size}"]
    return [*args.settings, *asked]


def job_of(args: argparse.Namespace) -> Job:
    """The job that `add_run_arguments` and `add_input` describe."""
    from graphfold.inference.apply import Job  # torch is loaded by then

    is_list = isinstance(args.input, list)
    return Job(
        run=args.run_path,
        inputs=args.input if is_list else [args.input],
        takes_many=is_list,
        settings=settings_of(args),
        trust=args.trust,
        input_format=args.input_format,
        shard=args.shard,
        engine=args.engine,
        workers=args.workers,
    )


def local_path(text: str) -> Path:
    """A path on this machine."""
    if is_address(text):
        raise argparse.ArgumentTypeError(
            f"it is '{text}', but it must be a path on this machine (no address)"
        )
    return Path(text)


def place(text: str) -> Path | str:
    """A path, or as text an address of fsspec, whose // a path would not keep."""
    for protocol in ("file://", "local://"):
        if text.startswith(protocol):
            return Path(text.removeprefix(protocol))
    return text if "://" in text else Path(text)


def _shard(text: str) -> tuple[int, int]:
    """The number of a job, from 1 on, and how many there are."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(
            f"'{text}' is no share. Write 3/64 for the third of 64 jobs, which count from 1"
        )
    return int(number), int(count)


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1 on")
    return int(text)
