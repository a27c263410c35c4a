"""The examples of examples/python, run as a user runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "python"


def _run(name: str, folder: Path, *arguments: str) -> list[str]:
    """The lines that an example prints."""
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder)
    assert found.returncode == 0 and found.stderr == "", found.stderr
    return found.stdout.splitlines()


def test_every_example_is_tested() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert f'"{path.name}"' in text, path


def test_oracle(tmp_path: Path) -> None:
    lines = _run("oracle.py", tmp_path)
    assert [line.split(":")[0] for line in lines[:3]] == ["q_out", "k_cache", "v_cache"]
    assert lines[-1].startswith("my_kernel is right")


def test_oracle_sees_a_wrong_kernel(tmp_path: Path) -> None:
    source = (EXAMPLES / "oracle.py").read_text(encoding="utf-8")
    wrong = source.replace("np.rint(values / scale)", "np.trunc(values / scale - 1)")
    assert wrong != source
    (tmp_path / "wrong.py").write_text(wrong, encoding="utf-8")
    found = subprocess.run(
        [sys.executable, "wrong.py"], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert found.returncode == 1 and "AssertionError: k_cache is wrong" in found.stderr


def test_quantisation_study(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = _run("quantisation_study.py", tmp_path, "--output", str(tmp_path))
    picture = tmp_path / "quantisation_study.svg"
    assert lines[-1] == f"written: {picture}" and b"<svg" in picture.read_bytes()
    scores = {}
    for line in lines[1:-1]:
        name, _, _, score = re.split(r"\s{2,}", line)
        scores[name] = float(score)
    assert scores["int8 channel"] < scores["int8 dynamic"] < scores["int8 head"]
    assert scores["int8 head"] < scores["int8 tensor"]
    assert all(scores[f"{name}, offset"] < scores[name] for name in ("int8 tensor", "int8 channel"))


def test_qwen3_decode(tmp_path: Path) -> None:
    lines = _run("qwen3_decode.py", tmp_path)
    assert lines[0].startswith("prefill    60 tokens, lengths [37  5 18]")
    assert lines[6].startswith("decode 6    3 tokens, lengths [43 11 24]")
    found = re.fullmatch(r"caches: bfloat16 (\d+) bytes, int8 (\d+) bytes", lines[-2])
    assert found is not None and int(found[1]) == 2 * int(found[2])
    found = re.fullmatch(r"largest error (\S+)%, allowed 2%", lines[-1])
    assert found is not None and 0.1 < float(found[1]) < 2


def test_transformers_prologue(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    lines = _run("transformers_prologue.py", tmp_path, "--rounds", "1")
    assert len(lines) == 17 and lines[1].startswith("bfloat16 decode 1 x 1    prologue")
