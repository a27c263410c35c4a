"""`python -m qkvfuse`: commands end to end, their files, and a sentence for each mistake."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import qkvfuse
from qkvfuse.__main__ import main
from qkvfuse.commands import bench, files, specs
from qkvfuse.commands.composition import Composition

CONFIG = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 4096,
    "head_dim": 128,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "max_position_embeddings": 40960,
    "attention_bias": False,
    "torch_dtype": "bfloat16",
}
SPEC = qkvfuse.Spec(
    "bfloat16",
    (4, 2, 2),
    64,
    q_norm="per_head",
    k_norm="per_head",
    k_cache=qkvfuse.Cache("float8_e5m2", "x_split_k", 3, 4, granularity="head"),
    v_cache=qkvfuse.Cache("float8_e4m3fn", "transposed", 3, 4, scale_rule="dynamic"),
)
TOKENS = 5
INPUTS = ("x", "q_gamma", "k_gamma", "cos", "sin", "slots", "k_scale")
OUTPUTS = ("q_out", "k_cache", "v_cache", "v_scale_cache")


@pytest.fixture
def call() -> dict[str, Any]:
    """Arrays of a call of SPEC, run."""
    arrays = bench.arrays_of(SPEC, TOKENS)
    qkvfuse.Plan(SPEC).run(**arrays)
    return arrays


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: dict[str, Any]) -> Path:
    """The working folder, with call.npz, keys.npz, SPEC in spec.json and CONFIG in config.json."""
    monkeypatch.chdir(tmp_path)
    inputs = {name: call[name] for name in INPUTS}
    np.savez(tmp_path / "call.npz", **inputs)
    (tmp_path / "spec.json").write_text(specs.json_of(SPEC))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    np.savez(tmp_path / "keys.npz", k=_keys())
    return tmp_path


def _keys() -> Any:
    return np.random.default_rng(1).standard_normal((32, 2, 16)).astype(np.float32)


def _bytes(arrays: dict[str, Any]) -> dict[str, bytes]:
    return {name: np.ascontiguousarray(arrays[name]).tobytes() for name in OUTPUTS}


def test_run_computes_what_the_plan_does(folder: Path, call: dict[str, Any], capsys: Any) -> None:
    assert main(["run", "call.npz", "--spec", "spec.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    made = files.read(folder / "call.out.npz")
    assert _bytes(made.arrays) == _bytes(call)
    assert specs.spec_of(specs.parse(made.attributes or "", "spec")) == SPEC
    assert [line.split()[:2] for line in lines[:-1]] == [
        ["q_out", "bfloat16"],
        ["k_cache", "float8_e5m2"],
        ["v_cache", "float8_e4m3fn"],
        ["v_scale_cache", "float32"],
    ]
    assert "[3, 2, 4, 4, 16]" in lines[1]
    assert main(["run", "call.npz", "--spec", "spec.json", "--reference", "-o", "other.npz"]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == lines[:-1]


def test_run_as_a_program(folder: Path) -> None:
    command = [sys.executable, "-m", "qkvfuse", "run", "call.npz", "--set", "heads=4,2"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert found.returncode == 2 and found.stdout == ""
    assert found.stderr == "qkvfuse run: x_dtype: is missing, Spec needs it\n"


def test_run_takes_and_writes_safetensors(folder: Path, call: dict[str, Any], capsys: Any) -> None:
    safetensors = pytest.importorskip("safetensors")
    from safetensors.numpy import save

    given = {name: call[name] for name in INPUTS}
    (folder / "call.safetensors").write_bytes(save(given, {"spec": specs.json_of(SPEC)}))
    assert main(["run", "call.safetensors"]) == 0
    path = folder / "call.out.safetensors"
    assert _bytes(files.read(path).arrays) == _bytes(call)
    header = {name: tensor["dtype"] for name, tensor in safetensors.deserialize(path.read_bytes())}
    assert header["q_out"] == "BF16" and header["k_cache"] == "F8_E5M2"


def test_run_writes_into_the_caches_that_are_given(folder: Path, call: dict[str, Any]) -> None:
    v_cache = np.full_like(call["v_cache"], 7)
    files.write(folder / "given.npz", {**{n: call[n] for n in INPUTS}, "v_cache": v_cache}, "{}")
    assert main(["run", "given.npz", "--spec", "spec.json"]) == 0
    made = files.read(folder / "given.out.npz").arrays["v_cache"].view(v_cache.dtype)
    is_unused = np.arange(12).reshape(3, 1, 1, 4) >= TOKENS  # slots 0 to 4 are written
    expected = np.where(is_unused, v_cache, call["v_cache"])
    assert made.tobytes() == expected.tobytes()


def test_words_change_single_fields(folder: Path, call: dict[str, Any]) -> None:
    words = ["q_norm.gamma=one_plus", "k_cache.layout=block row head channel", "k_cache.chunk=0"]
    argv = ["run", "call.npz", "--spec", "spec.json"]
    assert main(argv + [word for pair in words for word in ("--set", pair)]) == 0
    made = files.read(folder / "call.out.npz")
    spec = specs.spec_of(specs.parse(made.attributes or "", "spec"))
    assert spec.q_norm == qkvfuse.Norm("per_head", "one_plus")
    assert made.arrays["k_cache"].shape == (3, 4, 2, 64)
    assert made.arrays["q_out"].tobytes() != call["q_out"].tobytes()


def test_words_extend_a_short_form() -> None:
    words = ["q_norm.gamma=none", "heads=4,2,2", "bias=a b"]
    made = specs.with_words({"q_norm": "per_head"}, words)
    assert made == {
        "q_norm": {"kind": "per_head", "gamma": "none"},
        "heads": [4, 2, 2],
        "bias": "a b",
    }


def _operator_call() -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return rng.standard_normal(shape, np.float32).astype(ml_dtypes.bfloat16)

    return {
        "qkv": normal(6, 8 * 64),
        "q_gamma": normal(64),
        "k_gamma": normal(64),
        "cos": normal(6, 64),
        "sin": normal(6, 64),
        "index": np.arange(6),
        "k_cache": np.zeros((2, 4, 8, 32), np.int8),
        "v_cache": np.zeros((2, 4, 8, 32), np.int8),
        "k_scale": np.full((2, 64), 0.02, np.float32),
        "v_scale": np.full((2, 64), 0.02, np.float32),
    }


def test_run_takes_the_operators_of_ascend(folder: Path, capsys: Any) -> None:
    sizes: dict[str, Any] = {"qkv_size": [1, 6, 8, 64], "head_nums": [4, 2, 2]}
    attributes = {"operator": "npu_qkv_rms_norm_rope_cache", "is_output_qkv": True, **sizes}
    np.savez(folder / "npu.npz", spec=np.array(json.dumps(attributes)), **_operator_call())
    assert main(["run", "npu.npz"]) == 0
    made = files.read(folder / "npu.out.npz").arrays
    direct = {**_operator_call(), "q_out": np.zeros((6, 256), ml_dtypes.bfloat16)}
    q, k, v = qkvfuse.npu_qkv_rms_norm_rope_cache(**direct, **sizes, is_output_qkv=True)
    expected = {"q": q, "k": k, "v": v}
    expected.update((name, direct[name]) for name in ("q_out", "k_cache", "v_cache"))
    assert {name: array.tobytes() for name, array in made.items()} == {
        name: array.tobytes() for name, array in expected.items()
    }
    lines = capsys.readouterr().out
    assert main(["run", "npu.npz", "--reference"]) == 0
    assert capsys.readouterr().out == lines


def test_explain_tells_the_plan_and_its_arrays(folder: Path, capsys: Any) -> None:
    argv = ["explain", "--config", "config.json", "--cache", "int8+head", "--tokens", "64"]
    assert main([*argv, "--layout", "x_split_k,transposed", "--blocks", "10"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("model: qwen3, 36 layers\n  rotary table 0: 40960 rows of 128")
    assert "k_cache: x_split_k, 10 blocks of 16 rows" in out
    assert re.search(r"^k_cache +int8 +\[10, 8, 8, 16, 16\] +written$", out, re.MULTILINE)
    assert re.search(r"^v_scale +float32 +\[8\] +read$", out, re.MULTILINE)
    assert main(["explain", "--spec", specs.json_of(SPEC), "--set", "q_out=float16"]) == 0
    assert re.search(r"^q_out +float16 +\[1, 4, 64\]", capsys.readouterr().out, re.MULTILINE)


def test_verify_counts_its_cases(capsys: Any) -> None:
    assert main(["verify", "--seed", "3", "--cases", "4"]) == 0
    assert re.fullmatch(r"4 cases, \d+ elements, 0 differ\n", capsys.readouterr().out)
    assert main(["verify", "--seconds", "0.2"]) == 0
    cases = int(capsys.readouterr().out.split()[0])
    assert 1 <= cases < 1000


def test_bench_saves_what_it_prints(folder: Path, capsys: Any) -> None:
    argv = ["bench", "--config", "config.json", "--tokens", "1,4", "--seconds", "0.01"]
    assert main([*argv, "--cache", "int8+dynamic", "--layout", "pa_nz", "--save", "b.json"]) == 0
    out = capsys.readouterr().out
    rows = json.loads((folder / "b.json").read_text())["rows"]
    assert [row["name"] for row in rows] == [
        "model/int8+dynamic/pa_nz/T1/hot/1t",
        "model/int8+dynamic/pa_nz/T4/hot/1t",
    ]
    for row in rows:
        total = row["read_bytes"] + row["write_bytes"]
        assert row["gb_per_s"] == pytest.approx(total / row["fused_us"]["median"] * 1e-3)
        assert row["us_per_token"] == pytest.approx(row["fused_us"]["median"] / row["tokens"])
        assert row["fused_us"]["min"] <= row["fused_us"]["median"] <= row["fused_us"]["max"]
        assert row["numpy_us"]["median"] > 0 and row["rounds"] >= 3
        assert f"{row['us_per_token']:.3f}" in out
    model = qkvfuse.spec_from_config(CONFIG)
    spec = specs.with_caches(model.spec, "int8+dynamic", "pa_nz", 1, 16)
    assert rows[1]["read_bytes"] == qkvfuse.Plan(spec).traffic(4).read_bytes


OF_ELEMENTS = [layout for layout in qkvfuse.LAYOUTS if not layout.startswith("scales")]


@pytest.mark.parametrize("layout", [*OF_ELEMENTS, "head row block channel"])
@pytest.mark.parametrize("cache", ["16bit", "int8+offset", "fp8_e4m3+multiply+tensor"])
def test_numpy_passes_do_the_work_of_the_plan(layout: str, cache: str) -> None:
    size = 1 if layout == "token_pool" else 16
    rope = qkvfuse.Rope("interleaved", 32, table="joined", dtype="float32", max_positions=16)
    spec = qkvfuse.Spec(
        "bfloat16",
        (4, 2, 2),
        64,
        q_norm="full_width",
        k_norm="per_head",
        rope=rope,
        bias="bfloat16",
    )
    bench.check(specs.with_caches(spec, cache, layout, 16 // size, size))


def test_bench_refuses_to_time_what_is_wrong(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(Composition, "run", lambda self: None)
    argv = ["bench", "--filter", "llama3-8b/16bit/.*/T1/", "--seconds", "0.01"]
    assert main(argv) == 1
    assert "q_out: the NumPy passes differ" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        ("run nope.npz", "nope.npz: there is no such file"),
        ("run spec.json", "spec.json: is neither .npz nor .safetensors"),
        ("run call.npz", "call.npz: has no 'spec' that says what to compute"),
        ("run call.npz --spec {x", "--spec: is no JSON"),
        ("run call.npz --spec spec.json --set foo=1", "foo: is no field of Spec, must be x_dtype"),
        ("run call.npz --spec spec.json --set k_cache.foo=1", "k_cache.foo: is no field of Cache"),
        ("run call.npz --spec spec.json --set head_dim=128", "x: shape is (5, 512)"),
        ("run call.npz --spec spec.json --set x_dtype=float32", "x: has elements of 2 bytes"),
        ("run call.npz --spec spec.json --set q_norm=none", "q_gamma: is given"),
        ("run call.npz --spec spec.json --set k_norm", "--set: is 'k_norm', must be name=value"),
        ("run call.npz --spec spec.json --tokens x", "--tokens: is 'x'"),
        ("run call.npz --spec spec.json --threads -1", "threads: is -1"),
        ("run call.npz --spec spec.json -o out.txt", "out.txt: is neither"),
        ("run call.npz --set operator=npu_foo", "operator: is 'npu_foo', must be npu_qkv"),
        ("explain", "must be given by --config, --spec or --set"),
        ("explain --config nope", "nope: there is no such file"),
        ("explain --config spec.json", "model_type: is missing"),
        ("explain --config config.json --cache int8+foo", "--cache: has 'foo'"),
        ("explain --config config.json --layout foo", "layout: is 'foo', must be paged_nhd"),
        ("explain --config config.json --blocks 0", "k_cache.blocks: is 0"),
        ("bench --tokens 0", "--tokens: has 0"),
        ("bench --tokens a", "--tokens: is 'a'"),
        ("bench --filter zzz", "--filter: 'zzz' is in the name of no row"),
        ("bench --filter (", "--filter: '(' is no pattern"),
        ("bench --save nope/b.json", "--save: there is no folder nope"),
        ("plot layout foo -o x.svg", "layout: is 'foo', must be paged_nhd"),
        ("plot layout pa_nz -o x.txt", "--output: is x.txt, must end with .svg"),
        ("plot layout pa_nz -o x.svg --slots 8", "--slots: has 8, must be from 0 to 7"),
        ("plot layout pa_nz -o x.svg --head-dim 33", "chunk: is 32, must divide 33"),
        ("plot layout transposed -o x.svg --head-dim 4096", "falls into 65536 pieces"),
        ("plot error keys.npz --name v -o x.svg", "keys.npz: has no array 'v'"),
        ("plot error call.npz --name x -o x.svg", "x: is bfloat16 [5, 512], must be floats"),
        ("plot error keys.npz --dtype float16 -o x.svg", "--dtype: is float16, must be int8"),
        ("plot roofline spec.json -o x.svg", "spec.json: is not what bench --save has written"),
        ("", "the following arguments are required: COMMAND"),
    ],
)
def test_a_mistake_is_one_sentence(folder: Path, capsys: Any, argv: str, sentence: str) -> None:
    before = sorted(folder.iterdir())
    try:
        code = main(argv.split())
    except SystemExit as end:  # argparse
        code = int(end.code or 0)
    found = capsys.readouterr()
    assert code == 2 and sentence in found.err
    assert found.out == "" and found.err.count("\n") == 1
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    ("module", "argv"),
    [
        ("safetensors", "run call.npz --spec spec.json -o x.safetensors"),
        ("matplotlib", "plot layout pa_nz -o x.svg"),
    ],
)
def test_what_is_not_installed_is_named(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch, module: str, argv: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main(argv.split()) == 2
    err = capsys.readouterr().err
    assert f"{module}: is not installed" in err and "pip install" in err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["verify", "--cases", "0"], "argument --cases/--count: is 0, must be at least 1"),
        (["verify", "--seed", "-1"], "argument --seed: is -1, must be at least 0"),
        (["verify", "--seconds", "soon"], "argument --seconds: is 'soon', must be a number"),
        (["explain"], "a Spec: is missing, must be given by --config, --spec or --set"),
    ],
)
def test_numbers_and_specs_that_are_none(arguments: list[str], sentence: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "qkvfuse", *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and done.stderr == f"qkvfuse {arguments[0]}: {sentence}\n"
