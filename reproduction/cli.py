"""The command line: a table of commands, each of which is imported only when it is called."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any, NamedTuple, get_type_hints


class Command(NamedTuple):
    """A command: a function whose only argument is a documented dataclass of settings."""

    function: str  # "module:function"
    summary: str
    extra: str = "reproduction"


COMMANDS = {
    "bernoulli": Command(
        "reproduction.bernoulli.command:bernoulli",
        "Figure 1: exact variances on the Bernoulli toy problem, and the optimisation run",
    ),
    "tsp": Command(
        "reproduction.tsp.command:tsp",
        "Figure 3: train the Attention Model on the travelling salesman problem",
    ),
    "tsp-variance": Command(
        "reproduction.tsp.command:tsp_variance",
        "measure the gradient variance and bias of estimators on models of the former",
    ),
    "tsp-solve": Command(
        "reproduction.tsp.command:tsp_solve",
        "solve given instances with a trained model, and draw the tours",
    ),
    "tsp-figures": Command(
        "reproduction.tsp.command:tsp_figures",
        "Figure 3: plot the optimality gap against training steps and instances",
    ),
    "vae": Command(
        "reproduction.vae.command:vae",
        "Figure 2: train the categorical VAE with one estimator",
    ),
    "vae-variance": Command(
        "reproduction.vae.command:vae_variance",
        "Table 1: measure the gradient variance of estimators on a trained VAE",
    ),
    "vae-figures": Command(
        "reproduction.vae.command:vae_figures",
        "Figure 2: plot training curves, reconstructions and samples of VAE runs",
    ),
    "lm": Command(
        "reproduction.lm.command:lm",
        "train a small language model to sort digits from the rewards of k completions",
        "reproduction,transformers",
    ),
    "lm-figures": Command(
        "reproduction.lm.command:lm_figures",
        "plot rewards, duplicates and groups without signal of language model runs",
    ),
    "best-of-figures": Command(
        "reproduction.best_of.command:best_of_figures",
        "compare runs of tsp or lm that train for the best of m with runs for the mean",
    ),
    "reproduce": Command(
        "reproduction.reproduce.command:reproduce",
        "run all experiments of the paper, in a few minutes or in full, with a report",
    ),
    "claims": Command(
        "reproduction.claims.command:claims",
        "evaluate all claims on the committed tables, and write them into results/README.md",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Args:
        arguments: the arguments after the name of the program; None for those of this process.

    Returns:
        0 for success, 1 for an error, 2 for invalid arguments, 130 for an interruption.
    """
    name, *rest = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if name in ("-h", "--help"):
        print(usage())
        return 0
    if name == "--version":
        from importlib.metadata import version

        print(f"swor {version('swor')}")
        return 0
    if name not in COMMANDS:
        kind = "option" if name.startswith("-") else "command"
        return fail(f"there is no {kind} {name!r}; expected {one_of(COMMANDS)}.", 2)
    return run(name, rest)


def usage() -> str:
    """Return the list of commands."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: python -m reproduction COMMAND [OPTIONS]",
            "",
            "Reproduce the paper: its experiments, figures and tables.",
            "",
            *lines,
            "",
            "Use 'python -m reproduction COMMAND --help' for the options of a command.",
        ]
    )


def run(name: str, arguments: Sequence[str]) -> int:
    """Run a command, and turn missing packages and interruptions into messages."""
    command = COMMANDS[name]
    try:
        return call(name, command, arguments)
    except ModuleNotFoundError as error:
        if (error.name or "swor").startswith(("swor", "reproduction")):
            raise
        return fail(
            f"'python -m reproduction {name}' needs the package {error.name!r}, which is not installed. "
            f"Install it with: pip install -c constraints.txt -e '.[{command.extra}]'",
            1,
        )
    except KeyboardInterrupt:
        return fail("interrupted.", 130)


def call(name: str, command: Command, arguments: Sequence[str]) -> int:
    """Read the settings of a command and call it."""
    import tyro

    from reproduction.harness.errors import UserError, is_out_of_memory
    from reproduction.harness.interrupt import terminable
    from reproduction.harness.settings import defaults

    module, function = command.function.split(":")
    target = getattr(import_module(module), function)
    (kind,) = (hint for key, hint in get_type_hints(target).items() if key != "return")
    try:
        settings, unknown = tyro.cli(
            kind,
            prog=f"python -m reproduction {name}",
            args=arguments,
            default=defaults(kind, arguments),
            return_unknown_args=True,
            config=(tyro.conf.OmitArgPrefixes,),  # nested settings have plain options
        )
        if unknown:
            expected = one_of(dict.fromkeys(options(kind)))
            return fail(
                f"'python -m reproduction {name}' has no option {unknown[0]!r}; expected {expected}.",
                2,
            )
        with terminable():
            target(settings)
    except SystemExit as stop:  # tyro has printed the help or an error message
        return int(stop.code or 0)
    except (UserError, OSError) as error:
        return fail(str(error), 1)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        return fail(f"there is not enough memory for these sizes ({reason}). Give smaller ones.", 1)
    return 0


def options(kind: Any) -> Iterator[str]:
    """Return the options for the fields of settings, including those of nested settings."""
    hints = get_type_hints(kind)
    for field in fields(kind):
        hint = hints[field.name]
        yield from options(hint) if is_dataclass(hint) else (f"--{field.name.replace('_', '-')}",)


def one_of(names: Iterable[str]) -> str:
    """List the valid choices for an error message."""
    return "one of " + ", ".join(names)


def fail(message: str, code: int) -> int:
    """Print an error message, and return the exit code."""
    print(f"reproduction: {message}", file=sys.stderr)
    return code
