"""The Python of README.md and of docs/python.md runs as it is written, and the types hold."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def _blocks(page: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def _programs(page: str) -> list[str]:
    """The blocks of Python that are whole programs: those that import qkvfuse."""
    return [
        block for block in _blocks(page) if re.search(r"^import .*qkvfuse$", block, re.MULTILINE)
    ]


PAGES = ["README.md", "docs/python.md", "docs/transformers.md", "docs/quantisation.md"]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_python(page: str) -> None:
    blocks = _blocks(page)
    assert blocks
    for block in blocks:
        compile(block, page, "exec")


def test_readme_on_a_model_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    block = next(block for block in _blocks("README.md") if "import patch" in block)
    published = re.search(
        r"(?<=model = )transformers[.]Qwen3ForCausalLM[.]from_pretrained.*", block
    )
    assert published is not None and callable(transformers.Qwen3ForCausalLM.from_pretrained)
    small = (
        "transformers.Qwen3ForCausalLM(transformers.Qwen3Config(vocab_size=9999, hidden_size=32, "
        "intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, "
        "head_dim=16)).to(torch.bfloat16)"
    )
    program = block.replace(published[0], small)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0 and done.stdout.startswith("tensor([[9707,   11, 1879,"), done


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_first_program_of_a_page(page: str) -> None:
    program = _programs(page)[0]
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "(3, 8, 128)\n"


def test_types_of_the_installed_package(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("mypy")
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\n"
        "import qkvfuse\n"
        "plan = qkvfuse.Plan(x_dtype='float32', heads=(1, 1, 1), head_dim=2, rope='none')\n"
        "plan.run(x=np.zeros((1, 6), np.float32), q_out=np.zeros((1, 2), np.float32))\n"
        "reveal_type(plan.describe())\n"
        "plan.run(kcache=1)\n"
        "plan.run(threads='two')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=tmp_path,
    )
    lines = [line.split(": ", 1)[1] for line in done.stdout.splitlines() if ": " in line]
    assert [line for line in lines if line.startswith("note: Revealed")] == [
        'note: Revealed type is "str"'
    ] or any("builtins.str" in line for line in lines)
    errors = [line for line in lines if line.startswith("error")]
    assert len(errors) == 2, done.stdout
    assert 'Unexpected keyword argument "kcache"' in errors[0]
    assert 'incompatible type "str"; expected "int"' in errors[1]
