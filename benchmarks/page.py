"""Write docs/performance.md from the tables that the benchmarks wrote; no number is typed by hand.

python benchmarks/page.py [--output docs/performance.md]
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from pathlib import Path

from measure import OUTPUT

INTRODUCTION = """\
# Performance

This page shows the measurements of `make bench`; `make bench-page` writes it. Every comparison is a ratio
of medians over repeats that alternate within one run, in processor time of one thread. Times in
milliseconds hold only for the machine named below each table. If the load is larger than the number of
cores, other programs were running at the same time; then only the ratios are meaningful, and their last
digit is not.

    make bench                          # run all benchmarks
    python benchmarks/estimators.py     # run one of them
    make bench-page                     # write this page
    make soak                           # ten minutes of training steps: memory must stay flat
"""

ORDER = {  # the tables in the order of the page, and what each answers
    "readme": "What does the example of the README cost, compared with a hand-written REINFORCE?",
    "operations": "How many operations does a small loss dispatch?",
    "ratios": "How fast and how accurate are the ratios, compared with textbook methods?",
    "ratios_rule": "What do the weights of the estimator cost for a small batch?",
    "ratios_linear": "How does the cost of the ratios grow with the batch?",
    "ratios_growth": "And how does it grow with k?",
    "estimators": "What does the whole loss cost, compared with a hand-written REINFORCE?",
    "storchastic": "What does it cost, compared with another library?",
    "best_of": "What does the best of m cost, compared with the unordered set estimator?",
    "samplers": "What does sampling without replacement cost, compared with independent samples?",
    "large": "What do large domains cost, in time and in multiples of the memory of the logits?",
    "sequence": "What do distinct completions of a language model cost?",
    "completions": "And beside `generate(do_sample=True)`, for decoders and encoder-decoders?",
    "sequence-training": "And what does their gradient cost, in chunks?",
    "vllm_rounds": "What do distinct completions from a vLLM engine cost, compared with its own?",
    "vae": "What does a training step of the categorical VAE cost?",
    "control": "What does a control variate add to this step, beyond its own network?",
    "vae-shares": "How is the time of this VAE step divided?",
    "vae-decoding": "How much faster is it to decode the outcomes of a small domain than the samples?",
    "tsp": "What does a training step of the travelling salesman experiment cost?",
    "tsp-shares": "How is the time of this travelling salesman step divided?",
    "rl4co": "What does a training step of rl4co's attention model cost, beside its own?",
    "soak": "Does memory stay flat?",
}

NOTES = {
    "readme": "The whole training step of the README, with its optimiser, over the same step with a loss "
    "written by hand. Operations are those that the step dispatches, forward and backward; they do "
    "not depend on the machine.",
    "operations": "Where tensors are small, a loss costs as much as it has operations. `checks` are those of "
    "values, which `swor.set_validate_values(False)` turns off.",
    "ratios_linear": "The limit is a single pass over memory that writes the result.",
    "ratios_growth": "The limits are a pass over memory that writes the result, and its logarithms. The "
    "result has k² numbers for each set. Beyond the cache, the time to write them grows faster than their "
    "number.",
    "estimators": "`plain` is written by hand, with torch.multinomial. `rloo` is the same estimator by "
    "this library, `unordered` the unordered set estimator, `unchecked` the same after "
    "`swor.set_validate_values(False)`, and `compiled` the same with torch.compile. `sampler` and "
    "`sampler and rule` are parts of `unordered`, with the softmax before them. Three limits stand beside "
    "them: `softmax alone` normalises the logits and computes their gradient without any sample, "
    "`exponentials` is one exponential per outcome, and `noise and top-k` is one uniform number per outcome "
    "in double precision and the k + 1 largest of them. At 100 outcomes, the number of operations decides "
    "the time. At this batch size, the noise and the top-k matter as well: the loss by "
    "hand draws only k numbers, and sorts nothing.",
    "sequence": "`beams` is `generate(num_beams=k)` of transformers, and `samples` is "
    "`generate(do_sample=True, num_return_sequences=k)`.",
    "completions": "Ratios to `generate(do_sample=True, num_return_sequences=k)`: `distinct` is "
    "`sample_completions`, and `independent` is `ancestral_completions`. Every twentieth token ends a "
    "completion, so that lengths differ. Completions that have ended cost no computation here.",
    "vllm_rounds": "`independent` is an engine without our processor that draws n = k completions, of which "
    "the fraction `repetitions` repeats another one. `rounds` and `one by one` draw k distinct ones. "
    "Written by `make bench-vllm`.",
    "samplers": "Independent samples of a product need one operation for all variables. Distinct ones also "
    "need the first k different values, the mass outside and the threshold: many small operations.",
}
"""What a reader needs to know beside a table."""


def section(name: str) -> str:
    """A table with its title and its machine."""
    with (OUTPUT / f"{name}.csv").open(newline="") as file:
        head, *rows = list(csv.reader(file))
    about = json.loads((OUTPUT / f"{name}.json").read_text())
    lines = [head, ["---:"] * len(head), *([cell(text) for text in row] for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    heading = ORDER.get(name, about["title"])
    note = f"{NOTES[name]}\n\n" if name in NOTES else ""
    return f"## {heading}\n\n{about['title']}\n\n{note}{table}\n\n*{about['machine']}*\n"


def sections(page: Path) -> dict[str, str]:
    """The sections of a page by their headings; a benchmark that was not run keeps the one it has."""
    if not page.exists():
        return {}
    _, *parts = page.read_text(encoding="utf-8").split("\n## ")
    return {part.split("\n", 1)[0]: f"## {part.rstrip()}\n" for part in parts}


def cell(text: str) -> str:
    """Numbers with three digits, or all that are before the point."""
    try:
        number = float(text)
    except ValueError:
        return text
    if number.is_integer() and text.isdigit():
        return text
    return f"{number:.0f}" if abs(number) >= 100.0 else f"{number:.3g}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/performance.md"))
    given = parser.parse_args()
    found = {path.stem for path in OUTPUT.glob("*.json") if path.with_suffix(".csv").exists()}
    if not found:
        sys.exit(f"there are no tables in {OUTPUT}; expected those of `make bench`. Run it first.")
    before = sections(given.output)
    names = [name for name in ORDER if name in found or ORDER[name] in before]
    names += sorted(found - ORDER.keys())
    parts = [section(name) if name in found else before[ORDER[name]] for name in names]
    given.output.write_text("\n".join([INTRODUCTION, *parts]), encoding="utf-8")
    print(f"{given.output}: {', '.join(names)}")


if __name__ == "__main__":
    main()
