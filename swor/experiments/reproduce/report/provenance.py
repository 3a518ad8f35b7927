"""The part of the report on what was run: settings, versions, hardware, times."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from swor.experiments.reproduce.perform import Outcome, outcome
from swor.experiments.reproduce.report.html import paragraph, section, table
from swor.experiments.reproduce.steps import Step


def provenance(folder: Path, steps: Sequence[Step]) -> str:
    """Everything that one needs to run it again."""
    stored = json.loads((folder / "settings.json").read_text(encoding="utf-8"))
    ended = [outcome(folder, step.name) or Outcome(step.name, error="not run") for step in steps]
    cpu, wall = sum(o.cpu_seconds for o in ended), sum(o.seconds for o in ended)
    facts = [
        ["command", stored["command"]],
        ["seeds", ", ".join(map(str, stored["settings"]["seeds"]))],
        *([name, version] for name, version in stored["versions"].items()),
        ["machines", ", ".join(sorted({o.machine for o in ended if o.machine})) or "–"],
        ["processor", processor()],
        ["time of the processor", f"{cpu / 60:.1f} minutes"],
        ["time of all steps by the clock", f"{wall / 60:.1f} minutes, one thread each"],
    ]
    settings = [[name, _text(value)] for name, value in stored["settings"].items()]
    times = [
        [o.name, f"{o.seconds:.0f} s", f"{o.cpu_seconds:.0f} s", o.error or "done"] for o in ended
    ]
    return section(
        "run",
        "What was run",
        table("Software and hardware", ["what", "value"], facts),
        f"<details><summary>Settings</summary>{table('Sizes', ['setting', 'value'], settings)}</details>",
        "<details><summary>Steps</summary>"
        + table("Steps", ["step", "clock", "processor", "outcome"], times)
        + paragraph("The folder of each step has its own settings.json and numbers.")
        + "</details>",
    )


def processor() -> str:
    """The model and the number of processors."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    models = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return f"{models[0] if models else platform.machine()}, {os.cpu_count()} logical cores"


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list) else str(value)
