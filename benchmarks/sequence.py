"""`sample_completions` beside `generate` of transformers, on a small GPT-2.

    python benchmarks/sequence.py [--batch-size 2] [--new-tokens 64] [--prompt 16 256] [--k 4 16]

Ratios of CPU time, taken in turns, and of the memory that a call adds at its peak: to a beam search
of the same width, and to as many independent samples. Then a training step with the largest k, all
completions at once and in chunks. The model has 4 layers, is 256 wide and has 50 257 tokens; nothing
ends a completion, so all methods make as many steps.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable
from functools import partial

import torch
from measure import added_memory, report, timings
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

import swor
from swor.integrations.transformers import ancestral_completions, sample_completions

OURS, BEAMS = "sample_completions", "beams"
INDEPENDENT, SAMPLES = "ancestral_completions", "samples"


def small_model() -> GPT2LMHeadModel:
    """Random weights; only the sizes matter."""
    config = GPT2Config(n_layer=4, n_embd=256, n_head=4, n_positions=512)
    config.eos_token_id = config.bos_token_id = config.pad_token_id = None
    return GPT2LMHeadModel(config).eval()


def methods(model: GPT2LMHeadModel, prompts: Tensor, k: int, n: int) -> dict[str, Callable]:
    mask = torch.ones_like(prompts)
    generate = partial(
        model.generate, prompts, attention_mask=mask, max_new_tokens=n, num_return_sequences=k
    )
    return {
        OURS: partial(sample_completions, model, prompts, k=k, max_new_tokens=n),
        BEAMS: partial(generate, num_beams=k, do_sample=False),
        INDEPENDENT: partial(ancestral_completions, model, prompts, k=k, max_new_tokens=n),
        SAMPLES: partial(generate, do_sample=True, top_k=0),
    }


@torch.no_grad()
def drawing(model: GPT2LMHeadModel, given: argparse.Namespace) -> list[dict[str, object]]:
    """Time and memory of completions, beside those of transformers."""
    rows: list[dict[str, object]] = []
    for prompt, k in itertools.product(given.prompt, given.k):
        prompts = torch.randint(50_257, (given.batch_size, prompt))
        functions = methods(model, prompts, k, given.new_tokens)
        memory = {name: added_memory(function) for name, function in functions.items()}
        taken = timings(functions, repeats=given.repeats, seconds=600.0)
        for name, base in ((OURS, BEAMS), (OURS, SAMPLES), (INDEPENDENT, SAMPLES)):
            rows.append(
                {
                    "prompt": prompt,
                    "k": k,
                    "method": name,
                    "beside": base,
                    "seconds": taken[name].median,
                    "spread": taken[name].spread,
                    "time ratio": taken[name].median / taken[base].median,
                    "MB": memory[name],
                    "memory ratio": memory[name] / memory[base],
                }
            )
    return rows


def training(model: GPT2LMHeadModel, given: argparse.Namespace) -> list[dict[str, object]]:
    """Time and memory of a sample, its loss and the backward pass, by the size of chunks."""
    k = max(given.k)
    prompts = torch.randint(50_257, (given.batch_size, min(given.prompt)))

    def step(chunk: int | None) -> None:
        sample = sample_completions(
            model, prompts, k=k, max_new_tokens=given.new_tokens // 2, chunk=chunk
        )
        cost = (sample.value % 2).float().mean(-1)
        swor.unordered_set(sample).loss(cost).mean().backward()
        model.zero_grad()

    functions = {str(chunk): partial(step, chunk) for chunk in (None, max(1, k // 4), 1)}
    memory = {name: added_memory(function) for name, function in functions.items()}
    taken = timings(functions, repeats=given.repeats, seconds=300.0)
    return [
        {
            "k": k,
            "chunk": name,
            "seconds": taken[name].median,
            "time ratio": taken[name].median / taken["None"].median,
            "MB": memory[name],
            "memory ratio": memory[name] / memory["None"],
        }
        for name in functions
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in {"batch-size": 2, "new-tokens": 64, "repeats": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--prompt", type=int, nargs="+", default=[16, 256])
    parser.add_argument("--k", type=int, nargs="+", default=[4, 16])
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = small_model()
    report("Completions of prompts", drawing(model, given), "sequence")
    report(
        "A training step with completions in chunks", training(model, given), "sequence-training"
    )


if __name__ == "__main__":
    main()
