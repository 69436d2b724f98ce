"""Options that several sub-commands share."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_settings(parser: argparse.ArgumentParser) -> None:
    """The option --set, which gives `settings`."""
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the adapter or of data, read as Hydra does; may be repeated",
    )


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
        "--config-dir", type=Path, metavar="DIR", help="a further folder of config files"
    )


def add_input(parser: argparse.ArgumentParser) -> None:
    """The argument INPUT of commands that apply a run to a file."""
    parser.add_argument("input", metavar="INPUT", type=Path, help="a file like those trained on")


def add_parser(parser: argparse.ArgumentParser) -> None:
    """The option --parser, which gives `parser_name`."""
    parser.add_argument(
        "--parser",
        dest="parser_name",
        metavar="LIBRARY:MODEL",
        help="parse INPUT, raw sentences, by spacy, stanza or benepar, if that is installed",
    )


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number from 1 on")
    return int(text)
