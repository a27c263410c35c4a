"""`python -m qkvfuse plot`: what is drawn, and files that are the same bytes on every run."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import qkvfuse
from qkvfuse.__main__ import main
from qkvfuse._words import DType
from qkvfuse.commands import plot_error, plot_layout, plot_roofline

pytest.importorskip("matplotlib")


def test_memory_has_the_worked_address_of_the_documents() -> None:
    # docs/cache_layouts.md, "A worked address".
    memory = plot_layout.memory_of(qkvfuse.Cache("int8", "pa_nz", 3, 128), 8, 128)
    assert tuple(memory.owners[353670]) == (300, 5, 70)
    assert memory.axes == ("block", "head*channel_chunk", "row", "channel")
    assert memory.shape == (3, 32, 128, 32)


@pytest.mark.parametrize("layout", qkvfuse.LAYOUTS)
def test_pieces_cover_a_layout(layout: str) -> None:
    is_pool, is_scales = layout == "token_pool", layout.startswith("scales")
    cache = qkvfuse.Cache("float16", layout, 3, 1 if is_pool else 8)
    memory = plot_layout.memory_of(cache, 2, 1 if is_scales else 16)
    pieces = list(plot_layout.pieces_of(memory))
    address = 0
    for piece in pieces:
        assert piece.line * memory.line + piece.first == address
        assert piece.first + piece.size <= memory.line
        for step in range(piece.size):
            owner = (piece.slot, piece.head, piece.channel + step)
            assert tuple(memory.owners[address + step]) == owner
        address += piece.size
    assert address == math.prod(memory.shape) == len(np.unique(memory.owners, axis=0))
    if layout == "paged_nhd":
        assert {piece.size for piece in pieces} == {16}
    if layout == "transposed":
        assert {piece.size for piece in pieces} == {1}


@pytest.mark.parametrize("name", ["pa_nz", "transposed", "block row head channel"])
def test_layouts_are_drawn_the_same_every_time(tmp_path: Path, name: str, capsys: Any) -> None:
    paths = [tmp_path / "first.svg", tmp_path / "again.svg"]
    for path in paths:
        assert main(["plot", "layout", name, "--slots", "0,5", "-o", str(path)]) == 0
        assert f"written: {path}" in capsys.readouterr().out
    first, again = (path.read_bytes() for path in paths)
    assert first == again and b"<svg" in first and b"date" not in first


def test_read_back_is_what_a_cache_keeps() -> None:
    values = np.random.default_rng(2).standard_normal((9, 2, 16)).astype(np.float32)
    scale = (np.abs(values).max(axis=(0, 2)) / np.float32(127))[None, :, None]
    expected = np.rint(values / scale) * scale
    assert np.array_equal(plot_error.read_back(values, DType.INT8, "head"), expected)
    scale = np.abs(values).max(axis=2, keepdims=True) / np.float32(127)
    expected = np.rint(values / scale) * scale
    assert np.array_equal(plot_error.read_back(values, DType.INT8, "dynamic"), expected)


def test_errors_are_drawn_with_what_the_file_has(tmp_path: Path, capsys: Any) -> None:
    keys = np.random.default_rng(1).standard_normal((32, 2, 16)).astype(np.float32)
    keys[:, :, 3] *= 30
    codes = np.clip(np.rint(keys / np.float32(0.5)), -128, 127).astype(np.int8)
    file, path = tmp_path / "keys.npz", tmp_path / "error.svg"
    np.savez(file, k=keys, k_codes=codes, k_scale=np.full(1, 0.5, np.float32), k_after=keys)
    assert main(["plot", "error", str(file), "-o", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = {line[:50].strip(): float(line.split()[-1][:-1]) / 100 for line in lines[:-1]}
    assert found["int8, a scale for each channel"] < found["int8, a scale for each tensor"] / 4
    assert found["k_after of the file"] == 0
    error = np.linalg.norm(codes * 0.5 - keys) / np.linalg.norm(keys)
    assert found["k_codes of the file"] == pytest.approx(float(error), abs=1e-5)
    first = path.read_bytes()
    assert main(["plot", "error", str(file), "-o", str(path)]) == 0
    assert path.read_bytes() == first


def _row(name: str, tokens: int, **more: Any) -> dict[str, Any]:
    times = {"median": 20.0 * tokens, "p10": 19.0 * tokens, "p90": 22.0 * tokens}
    return {
        "name": name,
        "tokens": tokens,
        "gb_per_s": 5.0,
        "roof_gb_per_s": 9.0,
        "us_per_token": 4.0,
        "unfused_us": times,
        **more,
    }


def test_roofline_takes_the_rows_of_the_program(tmp_path: Path, capsys: Any) -> None:
    rows = [_row(f"qnr/8x1x128/{r}/T{t}/{r}/1t", t) for t in (64, 1) for r in ("hot", "cold")]
    file, path = tmp_path / "bench.json", tmp_path / "roofline.svg"
    file.write_text(json.dumps({"version": "0.1.0", "rows": rows}))
    assert main(["plot", "roofline", str(file), "-o", str(path)]) == 0
    assert path.read_text().count("<svg") == 1
    series = plot_roofline.series_of(plot_roofline.rows_of(file, "hot"))
    assert list(series) == ["qnr/8x1x128/hot/hot/1t"]
    assert [row["tokens"] for row in series["qnr/8x1x128/hot/hot/1t"]] == [1, 64]
    assert main(["plot", "roofline", str(file), "--filter", "no", "-o", str(path)]) == 2
    assert "has no row with 'no' in its name" in capsys.readouterr().err


def test_roofline_takes_the_rows_of_bench(tmp_path: Path, capsys: Any) -> None:
    file, path = tmp_path / "bench.json", tmp_path / "roofline.png"
    argv = ["bench", "--filter", "glm4", "--tokens", "1,2", "--seconds", "0.01"]
    assert main([*argv, "--cache", "16bit", "--save", str(file)]) == 0
    assert main(["plot", "roofline", str(file), "-o", str(path)]) == 0
    assert path.read_bytes().startswith(b"\x89PNG")
