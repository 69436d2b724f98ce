"""The sub-commands of `graphfold`, with one message and an exit code for each error."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from graphfold.commands import (
    check_adapter,
    draw,
    evaluate,
    listing,
    predict,
    train,
    tune,
    verify,
)
from graphfold.commands.parser import CommandParser
from graphfold.commands.shared_options import spread_settings
from graphfold.errors import GraphfoldError
from graphfold.training.process.quiet import readable_warnings

DONE, FAILED, WRONG_USE = 0, 1, 2

COMMANDS = {
    "train": train,
    "evaluate": evaluate,
    "predict": predict,
    "draw": draw,
    "tune": tune,
    "check-adapter": check_adapter,
    "verify": verify,
    "list": listing,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one sub-command; returns its exit code (0 done, 1 failure, 2 wrong use)."""
    # Threads of torch that wait for work by spinning make small operations a hundred times slower
    # as soon as another process wants the cores. Read when torch is loaded, so it is set before.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # names that the locale cannot write
    try:
        args = parse_arguments(sys.argv[1:] if argv is None else argv)
        with readable_warnings(args.debug), _terminated_as_interrupted():
            code = run(args)
    except SystemExit as end:  # argparse has printed the help, the version or the fault
        code = DONE if end.code is None else int(end.code)
    return _flushed(code)


def _flushed(code: int) -> int:
    """Writes what waits for standard output; the exit code, 1 where that cannot be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python tries again at exit, and must not complain about text that nobody takes.
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        if code == DONE and not isinstance(error, BrokenPipeError):
            _report(f"standard output: {error}.", FAILED, debug=False)
        return code or FAILED
    return code


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Makes SIGTERM end a command as Ctrl-C does: files are put away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def run(args: argparse.Namespace) -> int:
    """Runs a sub-command and prints its error as one message."""
    try:
        return int(args.run(args))
    except KeyboardInterrupt:
        return _report("interrupted.", FAILED, args.debug)
    except BrokenPipeError:  # the reader of our output (head, say) has gone
        return FAILED
    except GraphfoldError as error:
        return _report(_with_notes(error.message, error), error.exit_code, args.debug)
    except MemoryError:
        return _report("out of memory. Take a smaller data.batch_size.", FAILED, args.debug)
    except OSError as error:
        return _report(f"{error}.", FAILED, args.debug)
    except Exception as error:
        fault = f"{type(error).__name__}: {error}".rstrip(".")
        text = _with_notes(f"{fault}. Add --debug for the traceback.", error)
        return _report(text, FAILED, args.debug)


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The options of the sub-command, its `run` function, and the other words as `overrides`."""
    parser = CommandParser(
        prog="graphfold",
        description="Train, evaluate and apply neural networks on trees and molecules.",
        epilog="graphfold COMMAND --help says more about a command.",
    )
    parser.add_argument(
        "--version", action=_Version, nargs=0, help="print versions, processor, GPU, and stop"
    )
    parser.add_argument("--debug", action="store_true", help="print the traceback of an error")
    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True
    )
    for name, command in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=command.HELP,
            usage=command.USAGE,
            description=command.__doc__,
            conflict_handler="resolve",  # a command may have a --help of its own
        )
        sub.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )
        sub.set_defaults(run=command.run, parser=sub)
        command.add_arguments(sub)
    args, rest = parser.parse_known_args(spread_settings(argv))
    args.overrides = rest
    args.parser.check_rest(args.overrides, takes_overrides="overrides" in args.parser.usage)
    return args


class _Version(argparse.Action):
    """Prints versions, for which torch is loaded."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from graphfold.commands.version import version_lines

        print("\n".join(version_lines()))
        parser.exit()


def _with_notes(text: str, error: Exception) -> str:
    """The message with the notes of the error that it does not contain."""
    notes = [note for note in getattr(error, "__notes__", []) if note not in text]
    return "\n".join([text, *notes])


def _report(message: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print(f"error: {message}", file=sys.stderr)
    return code
