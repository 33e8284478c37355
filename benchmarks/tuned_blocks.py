"""Trial: what would a proxy bring whose upper blocks were tuned to tell sources apart?

    python benchmarks/tuned_blocks.py [--sources 20] [--prompts 100] [--first 19] [--last 24] [--epochs 2]

The states in front of block ``first`` are read once and kept. Blocks ``first`` to ``last`` are then trained by
cross-entropy over the sources on DCT modes 0 and 1 of the states behind ``last``; a batch is whole (128 tokens), or cut
to 64 or 32. The head starts at zero on standardised modes. benchmarks/trial_rows.py says on which rows it is tried.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend.proxies.encoding import encode
from backend.proxies.registry import describe, load_model
from benchmarks.trial_rows import Floats, TrialRows, parser_of, rows_of

TOKENS, CUTS, BATCH = 128, (128, 64, 32), 24


class UpperBlocks(nn.Module):
    """Blocks of a decoder on kept states, DCT modes 0 and 1 of the response behind them, and a linear head."""

    def __init__(self, model: Any, first: int, last: int, sources: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(model.layers[first - 1 : last]).float()
        self.rotary = model.rotary_emb
        self.scale = nn.BatchNorm1d(2 * model.config.hidden_size, affine=False)
        self.head = nn.Linear(2 * model.config.hidden_size, sources)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, states: Tensor, start: Tensor, stop: Tensor) -> Tensor:
        """Logits (B, C) of right-padded states (B, T, d) whose responses are tokens ``start`` to ``stop``."""
        places = torch.arange(states.shape[1])[None]
        turns = self.rotary(states, places)
        for block in self.blocks:
            states = block(states, position_embeddings=turns, position_ids=places)
            states = states[0] if isinstance(states, tuple) else states
        return self.head(self.scale(modes(states.float(), start, stop)))


def modes(states: Tensor, start: Tensor, stop: Tensor) -> Tensor:
    """DCT-II modes 0 and 1 (B, 2d), orthonormal, of the tokens of each response."""
    places = torch.arange(states.shape[1])[None] - start[:, None]
    length = (stop - start)[:, None]
    inside = (places >= 0) & (places < length)
    flat = inside / length.sqrt()
    wave = inside * torch.cos(math.pi * (places + 0.5) / length) * (2 / length).sqrt()
    return torch.cat([torch.einsum("bt,btd->bd", weight, states) for weight in (flat, wave)], 1)


@torch.inference_mode()
def lower_states(model: Any, rows: TrialRows, tokenizer: Any, first: int) -> list[tuple[Tensor, int, int]]:
    """States in front of block ``first``, bfloat16, with where the response starts and stops; (T, d) a response."""
    encoded = [one.cut(TOKENS) for one in encode(tokenizer, rows.traces, "ur")]
    layers, model.layers, norm = model.layers, model.layers[: first - 1], model.norm
    model.norm = nn.Identity()
    out: list[Any] = [None] * len(encoded)
    order = sorted(range(len(encoded)), key=lambda row: len(encoded[row].ids))
    for low in range(0, len(order), 8):
        batch = order[low : low + 8]
        ids = torch.zeros((len(batch), len(encoded[batch[-1]].ids)), dtype=torch.int64)
        for place, row in enumerate(batch):
            ids[place, : len(encoded[row].ids)] = torch.tensor(encoded[row].ids)
        states = model(ids, use_cache=False).last_hidden_state
        for place, row in enumerate(batch):
            out[row] = (states[place, : len(encoded[row].ids)].clone(), encoded[row].start, encoded[row].stop)
    model.layers, model.norm = layers, norm
    return out


def batch_of(kept: list[tuple[Tensor, int, int]], rows: list[int], cut: int) -> tuple[Tensor, Tensor, Tensor]:
    """Padded states of some responses, cut to so many tokens."""
    start = torch.tensor([kept[row][1] for row in rows])
    stop = torch.minimum(torch.tensor([kept[row][2] for row in rows]), start + cut)
    states = torch.zeros((len(rows), int(stop.max()), kept[rows[0]][0].shape[1]))
    for place, row in enumerate(rows):
        states[place, : int(stop[place])] = kept[row][0][: int(stop[place])].float()
    return states, start, stop


def train(upper: UpperBlocks, kept: list[tuple[Tensor, int, int]], rows: TrialRows, epochs: int) -> None:
    """AdamW on the rows that are not asked; the rate of the blocks falls to zero, that of the head is higher."""
    usable, truth = np.flatnonzero(~rows.asked), torch.from_numpy(rows.truth)
    steps = epochs * len(usable) // BATCH
    optimiser = torch.optim.AdamW(
        [{"params": upper.blocks.parameters(), "lr": 1e-4}, {"params": upper.head.parameters(), "lr": 2e-3}],
        weight_decay=0.01,
    )
    falling = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1, (step + 1) / 20) * (1 - step / steps))
    random, started = np.random.default_rng(0), time.perf_counter()
    for step in range(steps):
        some = random.choice(usable, BATCH, replace=False).tolist()
        with torch.autocast("cpu", torch.bfloat16):
            logits = upper(*batch_of(kept, some, CUTS[step % len(CUTS)]))
        loss = F.cross_entropy(logits.float(), truth[some])
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(upper.parameters(), 1.0)
        optimiser.step()
        falling.step()
        if step % 50 == 0:
            print(f"step {step} of {steps}, loss {loss.item():.3f}, {time.perf_counter() - started:.0f} s", flush=True)


@torch.inference_mode()
def told(upper: UpperBlocks, kept: list[tuple[Tensor, int, int]], rows: TrialRows, cut: int) -> Floats:
    """Log-posteriors of the rows that are asked, cut to so many tokens."""
    asked, out = np.flatnonzero(rows.asked).tolist(), []
    for low in range(0, len(asked), BATCH):
        with torch.autocast("cpu", torch.bfloat16):
            out.append(torch.log_softmax(upper(*batch_of(kept, asked[low : low + BATCH], cut)).float(), 1))
    return torch.cat(out).numpy()


def main() -> int:
    """Run the trial and print it."""
    parser = parser_of(__doc__)
    parser.add_argument("--first", type=int, default=19, help="first block that is tuned")
    parser.add_argument("--last", type=int, default=24, help="last block that is tuned, and read")
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rows, started = rows_of(arguments), time.perf_counter()
    model, tokenizer = load_model(describe(arguments.proxy))
    kept = lower_states(model.to(torch.bfloat16).eval(), rows, tokenizer, arguments.first)
    print(
        f"{len(kept):,} responses of {rows.sources} sources, read in {time.perf_counter() - started:.0f} s", flush=True
    )
    upper = UpperBlocks(model, arguments.first, arguments.last, rows.sources)
    members, started = {}, time.perf_counter()
    for name, epochs in (("head alone", 0), ("tuned", arguments.epochs)):
        upper.train()
        upper.blocks.requires_grad_(epochs > 0)
        train(upper, kept, rows, epochs or arguments.epochs)
        upper.eval()
        members[name] = told(upper, kept, rows, TOKENS)
        for cut in CUTS[1:]:
            right = (told(upper, kept, rows, cut).argmax(1) == rows.truth[rows.asked]).mean()
            print(f"{name}, {cut} tokens: {right:.4f}")
        print(f"{name}: trained after {time.perf_counter() - started:.0f} s", flush=True)
    rows.tell(members, ("head alone", "tuned"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
