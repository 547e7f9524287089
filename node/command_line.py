"""How both programs end: one line for an error, the right exit code, a traceback only on demand."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing.util
import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

import typer

from bt_p2p.errors import BtError, ConfigError
from node import exit_codes
from node.log_setup import is_debugging

# Newer releases of typer carry a click of their own; this is the base class in either.
_UsageError: type[Exception] = next(
    cls
    for cls in typer.BadParameter.__mro__
    if cls.__name__ == "ClickException" and issubclass(cls, Exception)
)


def run_app(app: typer.Typer, program: str) -> int:
    """Run a command line and return its exit code."""
    return guard(lambda: app(standalone_mode=False, prog_name=program), program)


def end_process(code: int) -> NoReturn:
    """End with everything printed and logged, and with child processes and temporary files gone.

    Python itself would first take torch apart, which takes a second, and twenty on a busy machine.
    """
    if "torch" in sys.modules:
        multiprocessing.util._exit_function()  # type: ignore[attr-defined]
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                stream.flush()
        os._exit(code)
    sys.exit(code)


def run_to_end(run: Callable[[], int]) -> NoReturn:
    """Run a program and end the process with its exit code."""
    try:
        code = run()
    except SystemExit as exc:
        code = exc.code if isinstance(exc.code, int) else exit_codes.FAILED
    end_process(code)


def guard(action: Callable[[], object], program: str) -> int:
    """Run an action and turn whatever it raises into an exit code and one line on stderr."""
    try:
        result = action()
    except (KeyboardInterrupt, typer.Abort):
        return exit_codes.INTERRUPTED
    except _UsageError as exc:
        show = getattr(exc, "show", None)
        if callable(show):
            show()
        return exit_codes.USAGE
    except ConfigError as exc:
        return _fail(program, exc, exit_codes.USAGE)
    except BtError as exc:
        return _fail(program, exc, exit_codes.FAILED)
    except BrokenPipeError:
        # whoever read our output has gone; keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_codes.OK
    except Exception as exc:  # noqa: BLE001 - the last border before the user
        code = _fail(program, exc, exit_codes.FAILED)
        if not is_debugging():
            _say("this is a fault of the program; --debug shows where, please report it")
        return code
    return result if isinstance(result, int) else exit_codes.OK


def _fail(program: str, error: Exception, code: int) -> int:
    if is_debugging():
        traceback.print_exception(error)
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, BtError):
        text = f"{type(error).__name__}: {text}"
    _say(f"{program}: error: {text}")
    return code


def _say(text: str) -> None:
    encoding = sys.stderr.encoding or "utf-8"
    sys.stderr.write(text.encode(encoding, errors="replace").decode(encoding) + "\n")
