"""Greedy generation, timed."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from .model import Gemma3
from .prologue import PrologueAndCache, Timed


@dataclass(frozen=True)
class Generation:
    """New tokens, and the seconds of the forward passes that made all but the first of them."""

    tokens: NDArray[np.int64]
    prompt_seconds: float
    seconds: float
    append_seconds: float
    read_seconds: float

    @property
    def tokens_per_second(self) -> float:
        """Of the tokens after the first, which comes with the prompt."""
        return (len(self.tokens) - 1) / self.seconds if self.seconds else 0.0


def generate(
    model: Gemma3,
    prompt: NDArray[np.int64],
    count: int,
    cache: PrologueAndCache,
    stop: int | None = None,
    progress: bool = True,
) -> Generation:
    """Takes the likeliest token `count` times, or until it is `stop`.

    Args:
        prompt: [tokens] ids; with `count` more they must fit into the cache.
        cache: empty.
        progress: shows a bar.
    """
    timed = Timed(cache)
    start = time.perf_counter()
    hidden = model.forward(prompt, 0, timed)
    tokens = [int(model.logits(hidden[-1:])[0].argmax())]
    prompt_seconds = time.perf_counter() - start
    timed.append_seconds = timed.read_seconds = 0.0
    start = time.perf_counter()
    for _ in tqdm(range(count - 1), unit="token", leave=False, disable=not progress):
        if tokens[-1] == stop:
            break
        last = np.array(tokens[-1:], np.int64)
        hidden = model.forward(last, len(prompt) + len(tokens) - 1, timed)
        tokens.append(int(model.logits(hidden)[0].argmax()))
    seconds = time.perf_counter() - start
    return Generation(
        np.array(tokens, np.int64),
        prompt_seconds,
        seconds,
        timed.append_seconds,
        timed.read_seconds,
    )
