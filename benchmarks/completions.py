"""Completions beside `generate(do_sample=True, num_return_sequences=k)` of transformers.

    python benchmarks/completions.py [--batch-size 4] [--k 8] [--new-tokens 64] [--prompt 16] [--long 1024]

Ratios of CPU time, taken in turns, and of the memory that a call adds at its peak: for decoders
with short, mixed and long prompts and with twice the tokens, and for models
like T5 and BART. The weights are random; every twentieth token ends a completion, so that lengths differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from measure import added_memory, report, timings
from torch import Tensor
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

from swor.integrations.transformers import ancestral_completions, sample_completions

WIDTH, LAYERS, HEADS = 256, 4, 4
DISTINCT, INDEPENDENT, GENERATE = "distinct", "independent", "generate"


def decoder(symbols: int) -> GPT2LMHeadModel:
    sizes = {"n_layer": LAYERS, "n_embd": WIDTH, "n_head": HEADS, "n_positions": 2048}
    return GPT2LMHeadModel(GPT2Config(vocab_size=symbols, **sizes)).eval()


def t5(symbols: int) -> T5ForConditionalGeneration:
    sizes = {"d_model": WIDTH, "d_kv": WIDTH // HEADS, "d_ff": 4 * WIDTH}
    sizes |= {"num_layers": LAYERS, "num_heads": HEADS}
    config = T5Config(vocab_size=symbols, decoder_start_token_id=0, **sizes)
    return T5ForConditionalGeneration(config).eval()


def bart(symbols: int) -> BartForConditionalGeneration:
    sizes = {"d_model": WIDTH, "encoder_layers": LAYERS, "decoder_layers": LAYERS}
    sizes |= {"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS}
    sizes |= {"encoder_ffn_dim": 4 * WIDTH, "decoder_ffn_dim": 4 * WIDTH}
    config = BartConfig(vocab_size=symbols, max_position_embeddings=2048, **sizes)
    model = BartForConditionalGeneration(config).eval()
    model.generation_config.forced_eos_token_id = None
    return model


def prompts_of(given: argparse.Namespace, length: int, *, mixed: bool) -> tuple[Tensor, Tensor]:
    """Random prompts and their mask; if they are mixed, the shortest has a quarter of the tokens."""
    ids = torch.randint(given.symbols, (given.batch_size, length))
    shortest = max(1, length // 4) if mixed else length
    lengths = torch.linspace(length, shortest, given.batch_size).long().unsqueeze(-1)
    return ids, (torch.arange(length) >= length - lengths).long()


def cases(given: argparse.Namespace) -> dict[str, tuple[Callable, int, int, bool]]:
    """A model, its number of tokens, the length of the prompts, and whether they are mixed."""
    symbols, short = given.symbols, given.prompt
    return {
        "decoder": (decoder, symbols, short, False),
        "decoder, mixed prompts": (decoder, symbols, 4 * short, True),
        "decoder, long prompts": (decoder, symbols, given.long, False),
        "decoder, large vocabulary": (decoder, 2 * symbols, short, False),
        "like T5": (t5, symbols, short, False),
        "like BART": (bart, symbols, short, False),
    }


def methods(
    model: PreTrainedModel, ids: Tensor, mask: Tensor, given: argparse.Namespace, symbols: int
) -> dict[str, Callable]:
    ends = list(range(2, symbols, 20))
    common = {"max_new_tokens": given.new_tokens, "eos_token_id": ends, "pad_token_id": 1}
    generate = partial(
        model.generate, ids, attention_mask=mask, do_sample=True, top_k=0,
        num_return_sequences=given.k, **common,
    )  # fmt: skip
    return {
        DISTINCT: partial(sample_completions, model, ids, mask, k=given.k, **common),
        INDEPENDENT: partial(ancestral_completions, model, ids, mask, k=given.k, **common),
        GENERATE: generate,
    }


@torch.no_grad()
def measure(given: argparse.Namespace) -> list[dict[str, object]]:
    """Time and memory of each case, in multiples of those of generate."""
    rows: list[dict[str, object]] = []
    for name, (make, symbols, length, mixed) in cases(given).items():
        ids, mask = prompts_of(given, length, mixed=mixed)
        functions = methods(make(symbols), ids, mask, given, symbols)
        memory = {which: added_memory(function) for which, function in functions.items()}
        taken = timings(functions, repeats=given.repeats, seconds=300.0)
        row: dict[str, object] = {"model": name, "tokens": symbols, "prompt": length, "k": given.k}
        row["generate, seconds"] = taken[GENERATE].median
        for which in (DISTINCT, INDEPENDENT):
            row[f"{which}, time"] = taken[which].median / taken[GENERATE].median
            row[f"{which}, memory"] = memory[which] / memory[GENERATE]
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    defaults = {"batch-size": 4, "k": 8, "new-tokens": 64, "prompt": 16, "long": 1024}
    for name, default in (defaults | {"symbols": 50_257, "repeats": 5}).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    report("Completions beside those of generate", measure(given), "completions")


if __name__ == "__main__":
    main()
