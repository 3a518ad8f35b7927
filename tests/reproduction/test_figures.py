"""Every committed picture shows the present tables, labels and colours."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from reproduction.cli import main
from reproduction.figures import NEED_A_MODEL, PICTURES, Picture, committed_table, outdated
from reproduction.harness import appearance
from reproduction.harness.drawing import smoothed, stamp, stamp_of
from reproduction.harness.errors import UserError

ROOT = Path(__file__).parents[2]
FIGURE1 = PICTURES[0]
STALE = "drawn from other tables, labels or colours"


def test_every_committed_picture_is_listed_once() -> None:
    listed = [*(picture.path for picture in PICTURES), *NEED_A_MODEL]
    found = subprocess.run(
        ["git", "ls-files", "*.png"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert sorted(listed) == sorted(found.stdout.split())


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.path)
def test_a_picture_is_up_to_date(picture: Picture) -> None:
    """Redraw outdated pictures with ``make figures``."""
    assert stamp_of(ROOT / picture.path) == stamp(picture.figure(ROOT))


@pytest.mark.parametrize(
    ("table", "name", "before", "after"),
    [
        ("LABELS", "rloo", ("RLOO", "-"), ("Leave-one-out", "-")),
        ("LABELS", "rloo", ("RLOO", "-"), ("RLOO", "--")),
        ("FAMILIES", "rloo", ("#444444", "s"), ("#444445", "s")),
        ("FAMILIES", "rloo", ("#444444", "s"), ("#444444", "o")),
    ],
)
def test_another_appearance_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    name: str,
    before: tuple[str, str],
    after: tuple[str, str],
) -> None:
    assert getattr(appearance, table)[name] == before
    monkeypatch.setitem(getattr(appearance, table), name, after)
    assert stamp_of(ROOT / FIGURE1.path) != stamp(FIGURE1.figure(ROOT))


@pytest.mark.parametrize(
    "picture", [p for p in PICTURES if "vae" in p.path and "curves" in p.path], ids=lambda p: p.path
)
def test_a_legend_says_how_much_is_smoothed(picture: Picture) -> None:
    window = picture.draw.keywords["smoothing"]
    (path,) = ((ROOT / picture.path).with_name(table) for table in picture.tables)
    for _, curve in committed_table(path).groupby(["run", "split"]):
        expected = smoothed(curve["negative_elbo"].tolist(), window)
        assert curve["smoothed"].tolist() == pytest.approx(expected)


def test_another_number_in_a_table_is_noticed() -> None:
    points = committed_table(ROOT / FIGURE1.tables[0])
    assert stamp(FIGURE1.draw(points)) == stamp_of(ROOT / FIGURE1.path)
    points.loc[3, "variance"] *= 1.001
    assert stamp(FIGURE1.draw(points)) != stamp_of(ROOT / FIGURE1.path)


def test_pictures_are_redrawn_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("reproduction.figures.PICTURES", PICTURES[:1])
    table = tmp_path / FIGURE1.tables[0]
    table.parent.mkdir(parents=True)
    shutil.copy(ROOT / FIGURE1.tables[0], table)
    assert main(["figures", "--root", str(tmp_path), "--check"]) == 1
    assert STALE in capsys.readouterr().err
    drawn = []
    for _ in range(2):
        assert main(["figures", "--root", str(tmp_path)]) == 0
        drawn.append((tmp_path / FIGURE1.path).read_bytes())
    assert drawn[0] == drawn[1]
    assert capsys.readouterr().out.splitlines() == [f"{FIGURE1.path} (changed)", FIGURE1.path]
    assert outdated(tmp_path) == []
    assert main(["figures", "--root", str(tmp_path), "--check"]) == 0
    table.unlink()
    with pytest.raises(UserError, match=r"there is no table .*variances.csv"):
        outdated(tmp_path)
