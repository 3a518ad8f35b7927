"""Settings: stored, read back, compared; nested ones too."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reproduction.harness.errors import UserError, check_at_least, check_positive
from reproduction.harness.folder import create
from reproduction.harness.settings import (
    MAY_CHANGE,
    TrainingSettings,
    defaults,
    may_change,
    read_settings,
    require_same,
)
from reproduction.lm.settings import LMSettings
from reproduction.pronunciation.settings import PronunciationSettings
from reproduction.tsp.settings import TSPSettings
from reproduction.vae.settings import VAESettings


@dataclass(frozen=True)
class Model:
    width: int = 8


@dataclass(frozen=True, kw_only=True)
class Example(TrainingSettings):
    epochs: int = field(default=10, metadata=MAY_CHANGE)
    data_dir: Path | None = None
    sizes: tuple[int, ...] = (1, 2)
    model: Model = field(default_factory=Model)


def stored(tmp_path: Path, settings: Example) -> Path:
    return create(tmp_path / "run").write_settings(settings).parent


def test_settings_are_read_in_their_types(tmp_path: Path) -> None:
    settings = Example(data_dir=Path("x"), sizes=(3,), model=Model(9), out=tmp_path / "run")
    run = stored(tmp_path, settings)
    assert read_settings(Example, run) == replace(settings, out=None)


def test_a_resumed_run_has_its_settings_as_defaults(tmp_path: Path) -> None:
    run = stored(tmp_path, Example(seed=3, model=Model(9)))
    for arguments in (["--resume", str(run)], ["--seed", "4", f"--resume={run}"]):
        assert defaults(Example, arguments) == Example(seed=3, model=Model(9))
    assert defaults(Example, ["--seed", "4"]) is None
    assert defaults(Model, ["--resume", str(run)]) is None  # a command that cannot be resumed
    with pytest.raises(UserError, match=r"there is no .*settings\.json"):
        defaults(Example, ["--resume", str(tmp_path / "nowhere")])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *(("", "cannot be read"), ("null", "cannot be read"), ("[]", "cannot be read")),
        *(("{", "cannot be read"), ("{}", "holds no settings"), ('{"settings": 3}', "but 3")),
        *(('{"settings": null}', "holds no settings"), ('{"settings": {"depth": 1}}', '"depth"')),
        *(('{"settings": {"model": null}}', '"model"'), ('{"settings": {"seed": 1.5}}', '"int"')),
        *(('{"settings": {"cpu": 1}}', '"bool"'), ('{"settings": {"clip": "x"}}', '"clip"')),
        *(('{"settings": {"sizes": [1, "2"]}}', '"sizes"'), ('{"settings": {"sizes": 3}}', "int")),
        ('{"settings": {"model": {"width": "8"}}}', '"model.width"'),
        ('{"settings": {"track": ["paper"]}}', '"track"'),
    ],
)
def test_files_without_such_settings(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(UserError, match=rf"settings\.json .*{said}.* expected"):
        read_settings(Example, tmp_path)


def test_only_what_may_change_may_change() -> None:
    before, path = Example(), Path("settings.json")
    require_same(before, Example(epochs=20, keep_every=1, out=Path("x")), path)
    with pytest.raises(UserError) as error:
        require_same(before, Example(seed=1, model=Model(9), data_dir=Path("y")), path)
    for said in ("seed was 0 and is 1", "model.width was 8 and is 9", "data_dir was None and is"):
        assert said in str(error.value)


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (LMSettings, {"epochs"}),
        (PronunciationSettings, {"epochs"}),
        (TSPSettings, {"steps"}),
        (VAESettings, {"epochs", "data_dir"}),
    ],
)
def test_a_resumed_run_may_be_longer_and_is_otherwise_the_same(
    kind: type[TrainingSettings], more: set[str]
) -> None:
    no_numbers = {"out", "resume", "checkpoint_every", "keep_every", "keep_steps", "track"}
    assert may_change(kind) == no_numbers | more


def test_a_setting_that_a_run_did_not_have_yet_has_its_default(tmp_path: Path) -> None:
    run = create(tmp_path / "run")
    run.write_json("settings.json", {"settings": {"seed": 3}})
    assert read_settings(Example, run.path) == Example(seed=3)


def test_settings_check_themselves() -> None:
    with pytest.raises(UserError, match=r"clip is 0\.0; expected more than 0"):
        Example(clip=0.0)
    with pytest.raises(UserError, match="epochs is -1; expected at least 0"):
        Example(epochs=-1)
    with pytest.raises(UserError, match="Leave out --out"):
        Example(out=Path("x"), resume=Path("y"))


def test_checks_leave_what_is_not_given() -> None:
    check_positive(Example(), "clip")
    check_at_least(Example(), 3, "data_dir", "epochs")
    with pytest.raises(UserError, match="seed is 0; expected at least 3"):
        check_at_least(Example(), 3, "seed")
    with pytest.raises(UserError, match="clip is nan; expected more than 0"):
        check_positive(replace(Example(), clip=float("nan")), "clip")
