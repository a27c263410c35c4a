"""Gemma's tokenizer, from the vocabulary that the GGUF file holds.

A text is cut at the tokens that are never made of parts (runs of newlines, tags). Of what lies
between, pairs of neighbouring pieces that are a token together are joined, the best score first,
until no pair is. What is then no token is spelt in bytes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from .weights import GgufFile

_SPACE = "\u2581"  # stands for a space in the vocabulary
_CONTROL, _USER_DEFINED, _BYTE = 3, 4, 6  # types of tokens in GGUF


class Tokenizer:
    """Text to ids and back."""

    def __init__(self, file: GgufFile) -> None:
        self._texts: list[str] = file.metadata("tokenizer.ggml.tokens")
        self._scores: list[float] = file.metadata("tokenizer.ggml.scores")
        self._types: list[int] = file.metadata("tokenizer.ggml.token_type")
        self._ids = {text: index for index, text in enumerate(self._texts)}
        self.bos: int = file.metadata("tokenizer.ggml.bos_token_id")
        self.eos: int = file.metadata("tokenizer.ggml.eos_token_id")
        vocabulary = zip(self._texts, self._types, strict=True)
        whole = [text for text, kind in vocabulary if kind == _USER_DEFINED]
        self._whole = sorted(whole, key=lambda text: -len(text.encode()))

    def encode(self, text: str, add_bos: bool = True) -> NDArray[np.int64]:
        """The ids of a text."""
        ids = [self.bos] if add_bos else []
        for piece, is_whole in self._cut(text):
            if is_whole:
                ids.append(self._ids[piece])
            else:
                ids.extend(self._joined(piece.replace(" ", _SPACE)))
        return np.array(ids, np.int64)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; control tokens have none."""
        data = bytearray()
        for index in ids:
            text, kind = self._texts[index], self._types[index]
            if kind == _BYTE:
                data.append(int(text[3:5], 16))
            elif kind != _CONTROL:
                data += text.replace(_SPACE, " ").encode()
        return data.decode(errors="replace")

    def _cut(self, text: str) -> Sequence[tuple[str, bool]]:
        """Pieces of a text, and whether each is a whole token. Longer tokens come first."""
        pieces = [(text, False)]
        for token in self._whole:
            if token not in text:
                continue
            cut: list[tuple[str, bool]] = []
            for piece, is_whole in pieces:
                if is_whole:
                    cut.append((piece, True))
                    continue
                for index, part in enumerate(piece.split(token)):
                    if index > 0:
                        cut.append((token, True))
                    if part:
                        cut.append((part, False))
            pieces = cut
        return pieces

    def _joined(self, text: str) -> Iterable[int]:
        """Ids of a piece: characters, joined pair by pair."""
        parts: list[str | None] = list(text)  # None: joined to a part before it
        before = list(range(-1, len(parts) - 1))
        after = [*range(1, len(parts)), -1]
        heap: list[tuple[float, int, str, int]] = []

        def offer(left: int, right: int) -> None:
            if left >= 0 and right >= 0:
                both = f"{parts[left]}{parts[right]}"
                index = self._ids.get(both)
                if index is not None:
                    heapq.heappush(heap, (-self._scores[index], left, both, right))

        for left, right in enumerate(after):
            offer(left, right)
        while heap:
            _, left, both, right = heapq.heappop(heap)
            # An entry is stale where one of its parts has been joined to another since.
            if parts[left] is None or parts[right] is None or after[left] != right:
                continue
            if f"{parts[left]}{parts[right]}" != both:
                continue
            parts[left], parts[right] = both, None
            after[left] = after[right]
            if after[left] >= 0:
                before[after[left]] = left
            offer(before[left], left)
            offer(left, after[left])
        for part in parts:
            if part is None:
                continue
            index = self._ids.get(part)
            if index is not None:
                yield index
            else:
                yield from (self._ids[f"<0x{byte:02X}>"] for byte in part.encode())
