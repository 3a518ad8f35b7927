"""Tiny models and data under the names that TRL's tests load them by, in a folder to run the tests in."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import torch
import transformers
from datasets import DatasetDict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

OWNER = "trl-internal-testing"
SIZES = {
    "hidden_size": 8,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
CAUSAL = {
    "tiny-Qwen2ForCausalLM-2.5": ("Qwen2", {}),
    "tiny-Qwen3ForCausalLM": ("Qwen3", {"head_dim": 2}),
    "tiny-Qwen3MoeForCausalLM": ("Qwen3Moe", EXPERTS | {"head_dim": 2}),
    "tiny-Cohere2ForCausalLM": ("Cohere2", {"logit_scale": 1.0}),
    "tiny-GptOssForCausalLM": ("GptOss", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "tiny-Glm4MoeForCausalLM": (
        "Glm4Moe",
        {
            "n_routed_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "head_dim": 2,
        },
    ),
}
CLASSIFIERS = {
    "tiny-Qwen2ForSequenceClassification-2.5": ("Qwen2", {}),
    "tiny-Qwen3ForSequenceClassification": ("Qwen3", {"head_dim": 2}),
    "tiny-LlamaForSequenceClassification-3.2": ("Llama", {}),
}
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer(vocabulary: int) -> transformers.PreTrainedTokenizerFast:
    """Bytes as tokens, words that a model may draw and that no text has, and special tokens of ChatML."""
    words = {byte: i for i, byte in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    words |= {f"word{i}": i for i in range(len(words), vocabulary - 3)}
    for special in ("<|endoftext|>", "<|im_start|>", "<|im_end|>"):
        words[special] = len(words)
    bytes_ = Tokenizer(models.BPE(words, []))
    bytes_.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=bytes_,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=CHAT,
        padding_side="left",
    )


def save_models(folder: Path, vocabulary: int) -> None:
    sizes = SIZES | {"vocab_size": vocabulary, "eos_token_id": vocabulary - 1}
    sizes |= dict.fromkeys(("bos_token_id", "pad_token_id"), vocabulary - 3)
    kinds = {
        "ForCausalLM": (CAUSAL, {}),
        "ForSequenceClassification": (CLASSIFIERS, {"num_labels": 1}),
    }
    for kind, (table, more) in kinds.items():
        for name, (family, given) in table.items():
            torch.manual_seed(0)
            config = getattr(transformers, f"{family}Config")(**sizes | given | more)
            model = getattr(transformers, f"{family}{kind}")(config)
            with (
                torch.no_grad()
            ):  # far from the usual zeros and ones, so that every parameter can change
                for parameter in model.parameters():
                    parameter.normal_(std=0.3 if parameter.dim() == 1 else 0.2)
            model.to(torch.bfloat16).save_pretrained(folder / OWNER / name)
            tokenizer(vocabulary).save_pretrained(folder / OWNER / name)


def save_data(folder: Path, source: Path) -> None:
    """Run TRL's own script, and save what it would upload."""
    configs: list[str] = []

    def save(self: DatasetDict, repo: str, config_name: str) -> None:
        for split, data in self.items():
            data.to_parquet(folder / repo / config_name / f"{split}.parquet")
        configs.append(config_name)

    DatasetDict.push_to_hub = save
    script = runpy.run_path(str(source / "scripts" / "generate_zen_dataset.py"))
    script["main"](0.1, True, f"{OWNER}/zen")
    files = "".join(f"  - split: {x}\n    path: CONFIG/{x}.parquet\n" for x in ("train", "test"))
    entry = f"- config_name: CONFIG\n  data_files:\n{files}"
    entries = "".join(entry.replace("CONFIG", config) for config in configs)
    (folder / OWNER / "zen" / "README.md").write_text(f"---\nconfigs:\n{entries}---\n")


if __name__ == "__main__":
    target, checkout = map(Path, sys.argv[1:3])
    save_models(target, int(sys.argv[3]))
    save_data(target, checkout)
