"""`python -m gemma3 "prompt"`: generates text with Gemma 3 270M."""

from __future__ import annotations

import argparse

from .cache_kinds import BASELINE, KINDS
from .engines import ENGINES, make_prologue
from .generate import generate
from .model import Gemma3
from .tokenizer import Tokenizer
from .weights import GgufFile, find_gguf


def main() -> None:
    """Of the command line."""
    parser = argparse.ArgumentParser(prog="python -m gemma3", description=__doc__)
    parser.add_argument("prompt")
    parser.add_argument("--tokens", type=int, default=64, help="at most (%(default)s)")
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    kinds = [kind.name for kind in KINDS.values() if not kind.is_calibrated]
    parser.add_argument("--cache", choices=kinds, default=BASELINE.name)
    options = parser.parse_args()

    file = GgufFile(find_gguf())
    tokenizer = Tokenizer(file)
    model = Gemma3.load(file)
    prompt = tokenizer.encode(options.prompt)
    capacity = len(prompt) + options.tokens
    cache = make_prologue(options.engine, model, capacity, KINDS[options.cache])
    result = generate(model, prompt, options.tokens, cache, tokenizer.eos)
    print(options.prompt + tokenizer.decode(result.tokens))
    total = max(result.seconds, 1e-9)
    print(
        f"\nprompt: {len(prompt)} tokens in {result.prompt_seconds:.2f} s; "
        f"then {result.tokens_per_second:.1f} tokens/s\n"
        f"{options.engine}, {options.cache} cache: "
        f"prologue {100 * result.append_seconds / total:.1f}% of the time, "
        f"reading the cache back {100 * result.read_seconds / total:.1f}%"
    )


if __name__ == "__main__":
    main()
