"""Compares the model with llama.cpp on the same file: `python -m gemma3.compare`.

Four comparisons: tokens of a text, logits of the same tokens, greedy generation, perplexity.
llama.cpp runs twice. On the file as it is, it rounds the activations of every product with
quantised weights to 8 bits, which this model does not. On the same weights as float32, what remains
is the order of sums and its GELU, which comes from a table of float16.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import Llama, llama_cpp
from numpy.typing import NDArray
from tqdm import tqdm

from .cache_kinds import FLOAT32
from .engines import ENGINES, make_prologue
from .generate import generate
from .gguf_float32 import write_float32
from .model import Gemma3
from .perplexity import losses, windows_of
from .text import CALIBRATION, EVALUATION, passage
from .tokenizer import Tokenizer
from .weights import Floats, GgufFile, find_gguf

Ints = NDArray[np.int64]

PROMPTS = (
    "The history of the lighthouse begins",
    "To bake a loaf of bread, you need",
    "In the beginning God created the heaven and the earth.",
    "def fibonacci(n):\n    ",
    "Question: What is the capital of Australia?\nAnswer:",
    "Der schnelle braune Fuchs springt",
)
TEXTS = (
    "Hello, world!",
    "  two spaces, a\ttab,\n\n\n three newlines   and   more\n",
    "na\u00efve caf\u00e9 \u2014 \u201cquotes\u201d",
    "\u65e5\u672c\u8a9e \U0001f9ea\u200d\U0001f52c \ue000",
    "<table><tr>x</tr></table> <b>bold</b> if (a[i] == 0) { return 3.14159; }",
)
_FLOAT32_CACHE = 0  # ggml's type


def _without_repacking() -> None:
    """Keeps llama.cpp from repacking weights for AMX.

    In virtual machines that show AMX and do not let programs use it, that ends with an illegal
    instruction.
    """
    default = llama_cpp.llama_model_default_params

    def changed() -> Any:
        params = default()
        params.use_extra_bufts = False
        return params

    llama_cpp.llama_model_default_params = changed


_without_repacking()


class Peer:
    """llama.cpp on one GGUF file, its cache float32."""

    def __init__(self, path: Path, context: int, threads: int) -> None:
        self._llama: Any = Llama(
            str(path),
            n_ctx=context,
            n_batch=context,
            n_ubatch=context,
            n_threads=threads,
            n_threads_batch=threads,
            logits_all=True,
            type_k=_FLOAT32_CACHE,
            type_v=_FLOAT32_CACHE,
            flash_attn=False,
            verbose=False,
        )

    def tokens(self, text: str) -> Ints:
        """Its tokens of a text, <bos> first."""
        return np.array(self._llama.tokenize(text.encode(), add_bos=True), np.int64)

    def logits(self, tokens: Ints) -> Floats:
        """[tokens, vocabulary] of a sequence."""
        self._llama.reset()
        self._llama.eval(tokens.tolist())
        return np.array(self._llama.scores[: len(tokens)], np.float32)

    def greedy(self, prompt: Ints, count: int) -> tuple[Ints, Floats]:
        """`count` new tokens, and the logits [count, vocabulary] that each was the largest of."""
        self._llama.reset()
        self._llama.eval(prompt.tolist())
        tokens: list[int] = []
        logits: list[Floats] = []
        for _ in range(count):
            logits.append(np.array(self._llama.scores[self._llama.n_tokens - 1], np.float32))
            tokens.append(int(logits[-1].argmax()))
            self._llama.eval(tokens[-1:])
        return np.array(tokens, np.int64), np.array(logits)


@dataclass(frozen=True)
class Parting:
    """Where two greedy generations part: a token each, and logits of both in both runtimes."""

    token: int  # of the new tokens, from 0
    ours: str
    theirs: str
    our_logits: tuple[float, float]
    their_logits: tuple[float, float]


@dataclass(frozen=True)
class Greedy:
    """One prompt."""

    prompt: str
    text: str
    same_tokens: int
    parting: Parting | None
    largest_logit_difference: float  # over the prompt and our new tokens
    mean_logit_difference: float
    llama_step_difference: float  # largest of llama.cpp's, token by token, from its own at once
    same_top_token_percent: float


def compare_tokens(tokenizer: Tokenizer, peer: Peer) -> int:
    """Checks that both make the same tokens of every text; returns how many tokens that were."""
    count = 0
    for text in (*TEXTS, *PROMPTS, passage(EVALUATION), passage(CALIBRATION)):
        ours, theirs = tokenizer.encode(text), peer.tokens(text)
        if not np.array_equal(ours, theirs):
            raise AssertionError(f"{text[:40]!r}: is {ours} here, {theirs} in llama.cpp")
        if tokenizer.decode(ours) != text:
            raise AssertionError(f"{text[:40]!r} is not what its tokens are decoded to")
        count += len(ours)
    return count


def compare_greedy(
    model: Gemma3, tokenizer: Tokenizer, peer: Peer, engine: str, prompt: str, count: int
) -> Greedy:
    """Generates with both and compares logits along our tokens."""
    ids = tokenizer.encode(prompt)
    cache = make_prologue(engine, model, len(ids) + count, FLOAT32)
    ours = generate(model, ids, count, cache, progress=False).tokens
    theirs, their_steps = peer.greedy(ids, count)
    both = np.concatenate([ids, ours])
    hidden = model.forward(both, 0, make_prologue(engine, model, len(both), FLOAT32))
    our_logits, their_logits = model.logits(hidden), peer.logits(both)
    difference = np.abs(our_logits - their_logits)
    parting = None
    apart = np.flatnonzero(ours != theirs)
    same = int(apart[0]) if len(apart) > 0 else count
    alike = slice(len(ids) - 1, len(ids) + min(same, count - 1))  # rows after the same tokens
    at_once = their_logits[alike]
    if len(apart) > 0:
        at = same
        pair = [ours[at], theirs[at]]
        parting = Parting(
            token=at,
            ours=tokenizer.decode(ours[at : at + 1]),
            theirs=tokenizer.decode(theirs[at : at + 1]),
            our_logits=tuple(our_logits[len(ids) + at - 1, pair].tolist()),
            their_logits=tuple(their_steps[at, pair].tolist()),
        )
    return Greedy(
        prompt=prompt,
        text=tokenizer.decode(ours),
        same_tokens=same,
        parting=parting,
        largest_logit_difference=float(difference.max()),
        mean_logit_difference=float(difference.mean()),
        llama_step_difference=float(np.abs(their_steps[: len(at_once)] - at_once).max()),
        same_top_token_percent=float(
            100 * (our_logits.argmax(axis=1) == their_logits.argmax(axis=1)).mean()
        ),
    )


def compare_perplexity(
    model: Gemma3, peer: Peer, engine: str, windows: list[Ints]
) -> dict[str, float]:
    """Perplexity over windows of text in both, and how far their logits are apart."""
    ours, theirs, largest, total = [], [], 0.0, 0.0
    for window in tqdm(windows, desc="windows", leave=False):
        hidden = model.forward(window, 0, make_prologue(engine, model, len(window), FLOAT32))
        their_logits = peer.logits(window)
        for start in range(0, len(window) - 1, 64):
            rows = slice(start, min(start + 64, len(window) - 1))
            targets = window[1:][rows]
            logits = model.logits(hidden[rows])
            ours.append(losses(logits, targets))
            theirs.append(losses(their_logits[rows], targets))
            difference = np.abs(logits - their_logits[rows])
            largest = max(largest, float(difference.max()))
            total += float(difference.mean(axis=1).sum())
    our_loss, their_loss = np.concatenate(ours), np.concatenate(theirs)
    return {
        "tokens": len(our_loss),
        "perplexity": float(np.exp(our_loss.mean())),
        "perplexity of llama.cpp": float(np.exp(their_loss.mean())),
        "largest difference of a token's log p": float(np.abs(our_loss - their_loss).max()),
        "largest logit difference": largest,
        "mean logit difference": total / len(our_loss),
    }


@dataclass(frozen=True)
class Limits:
    """How far llama.cpp may be from here.

    Attributes:
        logit: largest difference of a logit, over prompts and windows.
        perplexity: largest difference of the perplexities, as a part.
    """

    logit: float
    perplexity: float


# With float32 weights only the order of sums differs, and GELU, which llama.cpp takes from a table
# of float16. From the file as it is, llama.cpp multiplies with activations rounded to 8 bits.
LIMITS = {"float32 weights": Limits(0.15, 1e-3), "file as it is": Limits(10.0, 0.03)}


def check(name: str, greedy: list[Greedy], perplexity: dict[str, float]) -> None:
    """Holds a comparison against the limits of these weights.

    Where greedy tokens part, both candidates must be closer, in both runtimes, than two logits of
    that prompt can be moved: twice the largest difference that one of them shows.

    Raises:
        AssertionError: with a sentence that says what is too far apart.
    """
    limits = LIMITS[name]
    largest = max(result.largest_logit_difference for result in greedy)
    largest = max(largest, perplexity["largest logit difference"])
    if largest > limits.logit:
        raise AssertionError(f"{name}: a logit differs by {largest}, must be within {limits.logit}")
    ratio = perplexity["perplexity"] / perplexity["perplexity of llama.cpp"] - 1
    if abs(ratio) > limits.perplexity:
        raise AssertionError(
            f"{name}: perplexities differ by {ratio:.2%}, must be within {limits.perplexity:.2%}"
        )
    for result in greedy:
        if result.parting is None:
            continue
        rounding = 2 * result.largest_logit_difference
        for a, b in (result.parting.our_logits, result.parting.their_logits):
            if abs(a - b) > rounding:
                raise AssertionError(
                    f"{name}: {result.prompt!r} parts with logits {a - b:.3f} apart, must be "
                    f"within {rounding:.3f}, the rounding"
                )


def show(result: Greedy) -> None:
    """Prints one line, and two more where the tokens part."""
    print(
        f"  {result.prompt!r}: {result.same_tokens} tokens the same; logits differ by at most "
        f"{result.largest_logit_difference:.2g}, {result.mean_logit_difference:.2g} on average, "
        f"llama.cpp's from its own by {result.llama_step_difference:.2g}; "
        f"same top token {result.same_top_token_percent:.1f}%"
    )
    if result.parting is not None:
        part = result.parting
        for who, (a, b) in (("here", part.our_logits), ("llama.cpp", part.their_logits)):
            print(
                f"    token {part.token}, {who}: {part.ours!r} {a:.4f}, {part.theirs!r} {b:.4f}, "
                f"gap {a - b:+.4f}"
            )


def main() -> None:
    """Of the command line."""
    parser = argparse.ArgumentParser(prog="python -m gemma3.compare", description=__doc__)
    parser.add_argument("--engine", choices=ENGINES, default=ENGINES[0])
    parser.add_argument("--tokens", type=int, default=64, help="new ones for each prompt")
    parser.add_argument("--windows", type=int, default=1)
    parser.add_argument("--length", type=int, default=1024, help="tokens of a window")
    parser.add_argument("--threads", type=int, default=1, help="of llama.cpp (%(default)s)")
    parser.add_argument("--json", type=Path, default=Path("comparison.json"))
    options = parser.parse_args()

    file = GgufFile(find_gguf())
    tokenizer = Tokenizer(file)
    model = Gemma3.load(file)
    windows = windows_of(tokenizer, passage(EVALUATION), options.windows, options.length)
    report: dict[str, object] = {"model": file.path.name, "engine": options.engine}
    with tempfile.TemporaryDirectory() as folder:
        as_float32 = Path(folder) / "float32.gguf"
        write_float32(file.path, as_float32)
        for name, path in (("float32 weights", as_float32), ("file as it is", file.path)):
            peer = Peer(path, options.length, options.threads)
            count = compare_tokens(tokenizer, peer)
            print(f"llama.cpp, {name}: {count} tokens of text are the same")
            greedy = [
                compare_greedy(model, tokenizer, peer, options.engine, prompt, options.tokens)
                for prompt in tqdm(PROMPTS, desc="prompts", leave=False)
            ]
            for result in greedy:
                show(result)
            perplexity = compare_perplexity(model, peer, options.engine, windows)
            for key, value in perplexity.items():
                print(f"  {key}: {value:.6g}")
            check(name, greedy, perplexity)
            print(f"  within the limits: {LIMITS[name]}, and partings closer than the rounding")
            report[name] = {
                "text_tokens": count,
                "greedy": [asdict(result) for result in greedy],
                "windows": perplexity,
            }
            del peer
    options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
