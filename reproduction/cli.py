"""The command line: ``python -m reproduction COMMAND``, a command for each function of settings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Union, get_type_hints

from reproduction.harness.errors import UserError
from reproduction.harness.interrupt import terminable

Command = Callable[[Any], object]


def commands() -> list[Command]:
    """Return the commands; the only argument of each is a dataclass, whose docstring is the help."""
    from reproduction.bernoulli.command import bernoulli
    from reproduction.best_of.exact import best_of_variance
    from reproduction.best_of.figures import best_of_figures
    from reproduction.claims.command import claims
    from reproduction.control_variates import control_variates
    from reproduction.figures import figures
    from reproduction.lm.command import lm, lm_figures
    from reproduction.pronunciation.command import (
        pronunciation,
        pronunciation_figures,
        pronunciation_measure,
    )
    from reproduction.reproduce.command import reproduce
    from reproduction.reproduce.rules import rules
    from reproduction.rl4co import rl4co
    from reproduction.tsp.command import (
        tsp,
        tsp_best_of_k,
        tsp_figures,
        tsp_paired,
        tsp_pretrained,
        tsp_variance,
    )
    from reproduction.vae.command import vae, vae_figures, vae_variance
    from reproduction.when_it_pays import when_it_pays

    return [
        *(reproduce, claims, figures, rules, bernoulli, vae, vae_variance, vae_figures),
        *(tsp, tsp_pretrained, tsp_variance, tsp_best_of_k, tsp_figures, tsp_paired),
        *(lm, lm_figures),
        *(pronunciation, pronunciation_measure, pronunciation_figures),
        *(best_of_figures, best_of_variance, control_variates, when_it_pays, rl4co),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command, and return 0, 1 after an error, 2 for invalid arguments, or 130 if interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        command, settings = parse(given)
        with terminable():
            command(settings)
        sys.stdout.flush()
    except SystemExit as stop:  # tyro has printed the help or an error message
        return int(stop.code or 0)
    except KeyboardInterrupt:
        return fail("interrupted.", 130)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ModuleNotFoundError as error:
        if (error.name or "swor").startswith(("swor", "reproduction")):
            raise
        own = error.name in ("rl4co", "transformers")  # which have extras of their own
        extra = f"reproduction,{error.name}" if own else "reproduction"
        return fail(
            f"the package {error.name!r} is needed and not installed. Install it with: pip install "
            f"-c constraints.txt -e '.[{extra}]'",
            1,
        )
    except Exception as error:
        message = explanation(error)
        if message is None:
            raise
        return fail(message, 1)
    return 0


def parse(arguments: Sequence[str]) -> tuple[Command, Any]:
    """Return the command that arguments begin with, and its settings."""
    import tyro

    from reproduction.harness.settings import defaults

    kinds, functions = [], {}
    for function in commands():
        name = function.__name__.replace("_", "-")
        (kind,) = (hint for key, hint in get_type_hints(function).items() if key != "return")
        options: dict[str, Any] = {"description": (kind.__doc__ or "").splitlines()[0]}
        if name == arguments[0]:  # the others are only listed, with a line each
            stored = defaults(kind, arguments)
            options = {} if stored is None else {"default": stored}
        kinds.append(Annotated[kind, tyro.conf.subcommand(name, **options)])
        functions[kind] = function
    any_kind: Any = Union[tuple(kinds)]  # noqa: UP007
    settings = tyro.cli(
        any_kind,
        prog="python -m reproduction",
        description="Reproduce the paper: its experiments, figures and tables.",
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
    )
    return functions[type(settings)], settings


def explanation(error: Exception) -> str | None:
    """Return the message of an error that a user can correct; None for a mistake in the code."""
    if isinstance(error, UserError | OSError):
        return str(error)
    said = ("can't allocate memory", "not enough memory", "out of memory")  # PyTorch, by device
    if isinstance(error, MemoryError) or any(words in str(error) for words in said):
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return f"there is not enough memory for these sizes ({reason}). Give smaller ones."
    return None


def fail(message: str, code: int) -> int:
    """Print an error message, and return the exit code."""
    print(f"reproduction: {message}", file=sys.stderr)
    return code
