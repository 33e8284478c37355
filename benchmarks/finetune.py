"""What a step of fine-tuning takes: plain against fused attention, fused against looped AdamW, on this processor.

    python benchmarks/finetune.py [--encoder minilm-l6] [--batch 32] [--rounds 5]

A step is a forward pass, a backward pass and the optimiser, on batches without padding, with the settings of the
fine-tuned member of a stack. Variants take turns, so that a neighbour of the machine slows down all of them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.evaluations.stages.readout_members import tuned_settings
from backend.methods.fine_tuning import load_classifier

CLASSES = 100
VARIANTS = {
    "plain attention, fused AdamW": ("eager", True),
    "fused attention, fused AdamW": ("sdpa", True),
    "plain attention, looped AdamW": ("eager", False),
}


def step_of(encoder: str, attention: str, fused: bool) -> Callable[[torch.Tensor], None]:
    """One step of training on token ids (B, T)."""
    settings = tuned_settings()
    model, _ = load_classifier(encoder, CLASSES, settings, seed=0)
    model.train()
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if hasattr(part, "set_attn_implementation"):
            part.set_attn_implementation(attention)
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate, fused=fused)

    def step(ids: torch.Tensor) -> None:
        optimiser.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=settings.autocast):
            logits = model(ids, torch.ones_like(ids))
        torch.autograd.backward(nn.functional.cross_entropy(logits.float(), torch.arange(len(ids)) % CLASSES))
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimiser.step()

    return step


def main() -> int:
    """Run all and print what they took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoder", default="minilm-l6")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    steps = {name: step_of(asked.encoder, *variant) for name, variant in VARIANTS.items()}
    print(f"{asked.encoder}, batches of {asked.batch}, {torch.get_num_threads()} threads, {tuned_settings()}")
    for tokens in (128, 64, 32):
        took: dict[str, list[float]] = {name: [] for name in steps}
        for done in range(asked.rounds + 1):
            ids = torch.randint(1000, 20000, (asked.batch, tokens))
            for name, step in steps.items():
                started = time.perf_counter()
                step(ids)
                if done:
                    took[name].append(time.perf_counter() - started)
        first, *rest = (statistics.median(times) for times in took.values())
        others = ", ".join(f"{n} {s / first:.2f} times as long" for n, s in zip(list(steps)[1:], rest, strict=True))
        print(f"{tokens} tokens: {next(iter(steps))} {first:.3f} s a step; {others}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
