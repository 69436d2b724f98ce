"""List the choices: experiments, data, models, every other config group, and the corpora, adapters,
feature sets, splits, metrics, heads, readouts and cells that values of the config may name."""

from __future__ import annotations

import argparse

from graphfold.commands.loading import loading
from graphfold.commands.shared_options import add_config_dir, add_trust

HELP = "name what can be chosen: experiments, data, models, metrics and more"
USAGE = "graphfold list [options]"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `graphfold list`."""
    add_config_dir(parser)
    add_trust(parser)
    parser.add_argument(
        "--markdown", action="store_true", help="print the page of options of the site"
    )


def run(args: argparse.Namespace) -> int:
    """Prints one block per kind, one line per name."""
    from graphfold.errors import ConfigError

    if args.config_dir is not None and not args.config_dir.is_dir():
        raise ConfigError(f"{args.config_dir}: no such folder. Give --config-dir a folder.")
    with loading():  # naming the parts of a kind imports them
        from graphfold.training.config.available import format_choices, list_choices, options_page

        text = options_page() if args.markdown else format_choices(list_choices(args.config_dir))
    print(text)
    return 0
