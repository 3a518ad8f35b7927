"""The command line."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch

from reproduction import cli
from reproduction.bernoulli.command import bernoulli
from reproduction.harness.errors import UserError
from reproduction.tsp.settings import ModelSettings

pytest.importorskip("tyro")


@dataclass(frozen=True)
class Inner:
    """Inner settings."""

    rate: float = 1.0
    """The rate."""


@dataclass(frozen=True)
class Settings:
    """A command for tests."""

    number_of: int = 3
    """A number."""

    wrong: str = ""
    """What goes wrong."""

    inner: Inner = field(default_factory=Inner)


def toy(settings: Settings) -> None:
    """Do what the settings say."""
    if settings.wrong == "user":
        raise UserError("model.bin is no model; expected one of ours. Give another.")
    if settings.wrong == "folder":
        raise FileExistsError("there is something")
    if settings.wrong in ("seaborn", "transformers"):
        raise ModuleNotFoundError(name=settings.wrong)
    if settings.wrong == "memory":
        torch.empty(2**58)
    if settings.wrong == "interrupt":
        raise KeyboardInterrupt
    if settings.wrong == "bug":
        raise RuntimeError("a bug")
    print(settings.number_of, settings.inner.rate)


@pytest.fixture
def with_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "commands", lambda: [toy, bernoulli])


def test_help_lists_the_commands_with_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        assert cli.main(arguments) == 0
        said = capsys.readouterr().out
        assert re.search(r"• vae-figures[\s│]+Plot training and validation curves", said)
        assert said.count("•") == len(cli.commands())


@pytest.mark.usefixtures("with_toy")
def test_a_command_gets_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["toy", "--number-of", "-7", "--rate", "2.0"]) == 0
    assert capsys.readouterr().out == "-7 2.0\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["bernouli"], 2, "Available subcommands: toy, bernoulli"),
        (["--fast"], 2, "Unrecognized options: --fast"),
        (["toy", "--numbr-of", "3"], 2, "--number-of"),
        (["toy", "--number-of", "x"], 2, "Error parsing --number-of"),
        (["bernoulli", "--repeats", "1"], 1, "expected 0, or at least 2"),
        (["toy", "--wrong", "user"], 1, "reproduction: model.bin is no model"),
        (["toy", "--wrong", "folder"], 1, "there is something"),
        (["toy", "--wrong", "seaborn"], 1, "pip install -c constraints.txt -e '.[reproduction]'"),
        (["toy", "--wrong", "transformers"], 1, "-e '.[reproduction,transformers]'"),
        (["toy", "--wrong", "interrupt"], 130, "interrupted"),
        (["toy", "--wrong", "memory"], 1, "not enough memory for these sizes"),
    ],
)
@pytest.mark.usefixtures("with_toy")
def test_mistakes_are_explained(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == code
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


@pytest.mark.usefixtures("with_toy")
def test_bugs_are_not_hidden() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["toy", "--wrong", "bug"])


def test_every_command_can_be_called(capsys: pytest.CaptureFixture[str]) -> None:
    for command in cli.commands():
        name = command.__name__.replace("_", "-")
        assert cli.main([name, "--help"]) == 0, name
        assert f"python -m reproduction {name}" in capsys.readouterr().out


def test_the_choices_of_an_estimator_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("vae", "tsp", "lm"):
        assert cli.main([name, "--help"]) == 0
        assert "unordered_set," in capsys.readouterr().out.replace("\n", "")


def test_as_a_module(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    command = [sys.executable, "-m", "reproduction", "bernoulli", "--out", "taken"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "taken exists; expected a new or empty folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_may_have_seen_enough() -> None:
    command = f"{sys.executable} -m reproduction --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("tsp --estimator rlo", "invalid choice 'rlo' .* one of .*'rloo'"),
        (
            "vae-variance run --estimators rloo relaxx",
            "invalid choice 'relaxx' .* one of .*'relax'",
        ),
        ("reproduce --backend zzz", r"one of \('local', 'ray', 'dask'\)"),
    ],
)
def test_the_words_that_an_option_takes_are_listed(
    arguments: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments.split()) == 2
    assert re.search(said, " ".join(capsys.readouterr().err.replace("│", " ").split()))


def test_own_options_come_before_shared_ones(capsys: pytest.CaptureFixture[str]) -> None:
    own = {"tsp": "nodes", "vae": "estimator", "lm": "epochs", "tsp-variance": "repetitions"}
    for name, option in (own | {"vae-variance": "repetitions"}).items():
        assert cli.main([name, "--help"]) == 0
        said = capsys.readouterr().out
        assert said.index(f"--{option} ") < said.index("--seed ") < said.index("--resume "), name


def test_numbers_that_no_machine_has_room_for_are_refused_by_every_command() -> None:
    path, tried = Path("x"), set()
    for kind in (*map(settings_of, cli.commands()), ModelSettings):
        given = {"run": path, "runs": (path,), "model": path}
        needed = {f.name: given[f.name] for f in fields(kind) if is_required(f)}
        for name, hint in get_type_hints(kind).items():
            if hint in (int, int | None) and name != "seed":
                tried.add((kind.__name__, name))
                with pytest.raises(UserError, match=str(10**19)):
                    kind(**needed | {name: 10**19})
    assert {("TSPSettings", "steps"), ("Settings", "jobs"), ("VAEVariance", "warm_up")} <= tried


def settings_of(command: cli.Command) -> Any:
    (kind,) = (hint for name, hint in get_type_hints(command).items() if name != "return")
    return kind


def is_required(f: Field[Any]) -> bool:
    return f.default is MISSING and f.default_factory is MISSING
