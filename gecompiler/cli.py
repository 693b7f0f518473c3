"""The ``gec`` command: what it offers, and how it fails.

Nothing heavy is imported here, so that ``gec --help`` answers at once.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Sequence

import click

from gecompiler import __version__
from gecompiler.cli_calibrate import calibrate
from gecompiler.cli_check import check
from gecompiler.cli_compile import compile_command, run
from gecompiler.cli_diff import diff
from gecompiler.cli_explain import explain
from gecompiler.cli_language import choose_language, prepare, show_mistake
from gecompiler.cli_list import devices, models, options, passes, strategies
from gecompiler.cli_plan import plan
from gecompiler.cli_profile import profile
from gecompiler.cli_sweep import sweep
from gecompiler.cli_topologies import topologies
from gecompiler.cli_tune import tune
from gecompiler.terminal import printable_output

MAX_MESSAGE = 8000
EPILOG = (
    "Begin with 'gec compile bert-base --batch 1', or a model of your own: 'gec compile FILE.onnx'."
    "\n\n"
    "Exit codes: 0 done, 1 the model or schedule is at fault, 2 wrong usage, 3 numbers differ."
)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=EPILOG,
)
@click.version_option(__version__, prog_name="gec")
def gec() -> None:
    """Compile an ONNX model the way a graph engine does and see it run on a simulated NPU."""


for _command in (
    *(compile_command, run, profile, explain, diff, check, calibrate, sweep, tune, plan),
    *(devices, topologies, models, options, passes, strategies),
):
    gec.add_command(_command)
prepare([gec, *gec.commands.values()])


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of ``gec``; exits with the code that interfaces.md gives."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    choose_language(given)
    if threading.current_thread() is threading.main_thread():
        # Ending by exception, so that nothing half-written is left behind.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with printable_output():
        code = _guarded([a for a in given if a != "--debug"], debug)
    sys.exit(code)


def _guarded(arguments: list[str], debug: bool) -> int:
    from gecompiler.ir.errors import GecError
    from gecompiler.lang import error_text, say
    from gecompiler.option_flags import flags_in, with_flags

    try:
        with gec.make_context("gec", arguments) as context:
            code = gec.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _fail(say("interrupted"), 130)
    except click.ClickException as error:
        show_mistake(error)
        return error.exit_code
    except GecError as error:
        if debug:
            raise
        return _fail(with_flags(error_text(error), flags_in(gec, arguments)), error.exit_code)
    except BrokenPipeError:
        # The reader of a pipe went away (`gec ... | head`): nothing to say, nobody to hear it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if debug and not _is_out_of_room(error):
            raise
        return _unforeseen(error)


def _is_out_of_room(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO)


def _unforeseen(error: Exception) -> int:
    """Says what ended the command that no part of it foresaw."""
    from gecompiler.lang import say

    if _is_out_of_room(error):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reason = getattr(error, "strerror", "")
        return _fail(say("the output cannot be written: {reason}", reason=reason), 2)
    if isinstance(error, MemoryError):
        return _fail(say("there is not enough memory for this"), 1)
    message = say("internal error: {kind}: {error}", kind=type(error).__name__, error=error)
    hint = say("this is a bug of gecompiler; run again with --debug for the traceback")
    return _fail(f"{message}\n  {say('hint: {hint}', hint=hint)}", 1)


def _fail(message: str, code: int) -> int:
    from gecompiler.lang import say

    if len(message) > MAX_MESSAGE:  # names from files have no end
        message = f"{message[:MAX_MESSAGE]}..."
    click.echo(say("gec: error: {message}", message=message), err=True)
    return code
