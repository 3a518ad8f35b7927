"""Settings: stored, read back, compared; nested ones too."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reproduction.harness.errors import UserError, check_at_least, check_positive
from reproduction.harness.folder import create
from reproduction.harness.settings import (
    MAY_CHANGE,
    TrainingSettings,
    as_json,
    defaults,
    read_settings,
    require_same,
)


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
    "content",
    [
        *("", "null", "[]", "{", "{}", '{"settings": {"depth": 1}}', '{"settings": 3}'),
        *('{"settings": null}', '{"settings": {"model": null}}', '{"settings": {"seed": null}}'),
        *('{"settings": {"seed": 1.5}}', '{"settings": {"cpu": 1}}', '{"settings": {"clip": "x"}}'),
        *('{"settings": {"sizes": [1, "2"]}}', '{"settings": {"seed": true}}'),
    ],
)
def test_files_without_such_settings(content: str, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(content)
    with pytest.raises(UserError, match="does not hold the settings of such a run"):
        read_settings(Example, tmp_path)


def test_only_what_may_change_may_change() -> None:
    before = as_json(Example())
    require_same(before, Example(epochs=20, keep_every=1, out=Path("x")), Path("checkpoint.pt"))
    changed = Example(seed=1, model=Model(9), data_dir=Path("y"))
    with pytest.raises(UserError) as error:
        require_same(before, changed, Path("checkpoint.pt"))
    for said in (
        "seed was 0 and is 1",
        "model.width was 8 and is 9",
        "data_dir was None and is 'y'",
    ):
        assert said in str(error.value)


def test_a_setting_that_a_run_did_not_have_yet_must_have_its_default() -> None:
    stored = json.loads(as_json(Example()))
    less = json.dumps({k: v for k, v in stored.items() if k not in ("sizes", "model", "data_dir")})
    require_same(less, Example(), Path("checkpoint.pt"))
    with pytest.raises(UserError, match=r"model.width was 8 and is 9; sizes was \[1, 2\] and is"):
        require_same(less, Example(sizes=(3,), model=Model(9)), Path("checkpoint.pt"))
    more = json.dumps(stored | {"depth": 3})
    with pytest.raises(UserError, match="depth was 3 and is 'not a setting'"):
        require_same(more, Example(), Path("checkpoint.pt"))


def test_settings_check_themselves() -> None:
    with pytest.raises(UserError, match=r"clip is 0\.0; expected more than 0"):
        Example(clip=0.0)
    with pytest.raises(UserError, match="epochs is -1; expected at least 0"):
        Example(epochs=-1)


def test_checks_leave_what_is_not_given() -> None:
    check_positive(Example(), "clip")
    check_at_least(Example(), 3, "data_dir", "epochs")
    with pytest.raises(UserError, match="seed is 0; expected at least 3"):
        check_at_least(Example(), 3, "seed")
    with pytest.raises(UserError, match="clip is nan; expected more than 0"):
        check_positive(replace(Example(), clip=float("nan")), "clip")
