"""Read a file or corpus with its adapter and describe it in a data card."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from graphfold.commands.loading import loading
from graphfold.commands.shared_options import add_settings, add_trust, local_path

HELP = "read data with its adapter, say what is in it"
USAGE = "graphfold check-adapter NAME [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold check-adapter`."""
    parser.add_argument("name", metavar="NAME", help="an adapter or a corpus, see graphfold list")
    parser.add_argument(
        "--config-dir",
        type=local_path,
        metavar="DIR",
        help="NAME is a config of its own, DIR/data/NAME.yaml",
    )
    parser.add_argument("--data", type=local_path, metavar="PATH", help="the file to read")
    add_settings(parser)
    add_trust(parser)
    parser.add_argument("--on-error", choices=["raise", "skip"], help="what to do with bad records")
    parser.add_argument("--json", type=local_path, metavar="FILE", help="write the data card here")


def run(args: argparse.Namespace) -> int:
    """Prints the data card; writes it with --json."""
    with loading():
        from graphfold.datasets.inspection.data_card import check_data, format_card
        from graphfold.files import check_output, write_json
        from graphfold.training.config.overrides import parse_settings

    check_output(args.json)
    name, settings = args.name, parse_settings(args.settings)
    if args.config_dir is not None:
        name, configured = _from_config(name, args.config_dir, args.data)
        settings = {**configured, **settings}
    if args.on_error is not None:
        settings["on_error"] = args.on_error
    card = check_data(name, args.data, settings)
    if args.json is not None:
        write_json(args.json, card)
    print(format_card(card))
    return 0


def _from_config(name: str, folder: Path, path: Path | None) -> tuple[str, dict[str, Any]]:
    """The adapter or corpus of a config in the user's folder, and its settings."""
    from graphfold.training.config.compose import compose

    placeholder = [] if path is None else ["data.path=placeholder"]
    settings = dict(compose([f"data={name}", *placeholder], folder).config.data)
    if path is not None:
        del settings["path"]
    source = {key: settings.pop(key, None) for key in ("corpus", "adapter")}
    return source["corpus"] or source["adapter"], settings
