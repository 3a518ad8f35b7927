"""The command line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reproduction import cli
from reproduction.harness.errors import UserError

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
    if settings.wrong == "package":
        raise ModuleNotFoundError("No module named 'seaborn'", name="seaborn")
    if settings.wrong == "interrupt":
        raise KeyboardInterrupt
    if settings.wrong == "bug":
        raise RuntimeError("a bug")
    print(settings.number_of)


@pytest.fixture(autouse=True)
def with_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cli.COMMANDS, "toy", cli.Command(f"{__name__}:toy", "a toy"))
    missing = cli.Command("nowhere_to_be_found:run", "needs an extra", "tsp")
    monkeypatch.setitem(cli.COMMANDS, "missing", missing)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[toy.__module__])


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        assert cli.main(arguments) == 0
        said = capsys.readouterr().out
        assert all(name in said for name in cli.COMMANDS)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("swor 0.")


def test_a_command_gets_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["toy", "--number-of", "-7"]) == 0
    assert capsys.readouterr().out == "-7\n"


def test_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["toy", "--help"]) == 0
    assert "--number-of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["bernouli"], 2, "there is no command 'bernouli'; expected one of bernoulli"),
        (["--fast"], 2, "there is no option '--fast'"),
        (["toy", "--speed", "3"], 2, "expected one of --number-of, --wrong, --rate"),
        (["toy", "--number-of", "x"], 2, "--number-of"),
        (["bernoulli", "--eta", "nan"], 1, "from -15 to 15"),
        (["toy", "--wrong", "user"], 1, "reproduction: model.bin is no model"),
        (["toy", "--wrong", "folder"], 1, "there is something"),
        (["toy", "--wrong", "package"], 1, "pip install -c constraints.txt -e '.[reproduction]'"),
        (["toy", "--wrong", "interrupt"], 130, "interrupted"),
        (["missing"], 1, "needs the package 'nowhere_to_be_found'"),
    ],
)
def test_mistakes_are_explained(
    arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == code
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_bugs_are_not_hidden() -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["toy", "--wrong", "bug"])


def test_every_command_can_be_called(capsys: pytest.CaptureFixture[str]) -> None:
    for name in set(cli.COMMANDS) - {"toy", "missing"}:
        assert cli.main([name, "--help"]) == 0, name
        assert f"python -m reproduction {name}" in capsys.readouterr().out


def test_as_a_module(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    command = [
        sys.executable,
        "-m",
        "reproduction",
        "bernoulli",
        "--eta",
        "0",
        "-4",
        "--out",
        "taken",
    ]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 1
    assert "taken exists; expected a new or empty folder" in done.stderr
    assert "Traceback" not in done.stderr
