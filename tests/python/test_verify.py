"""The verifier, with libraries that are wrong in one way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from exact import F32
from qkvfuse import reference
from qkvfuse._spec import Spec
from qkvfuse.reference.arithmetic import widen
from qkvfuse.verify import Case, check, main, random_case


def _reference(spec: Spec, tokens: Any, arrays: dict[str, Any], is_measured: bool) -> None:
    (reference.measure if is_measured else reference.run)(spec, tokens=tokens, **arrays)


def test_a_case_is_made_of_its_seed() -> None:
    first, again, other = (random_case(np.random.default_rng(seed)) for seed in (7, 7, 8))
    assert str(first) == str(again) != str(other)
    assert all(np.array_equal(first.buffers[name], again.buffers[name]) for name in first.buffers)


def test_the_verifier_sees_one_bit_of_any_output() -> None:
    seen = set()
    for seed in range(40):
        case = random_case(np.random.default_rng(seed))
        for name, operand in case.operands.items():
            if not operand.is_output or _ends_with_nan_or_nothing(case, name):
                continue

            def wrong(
                spec: Spec,
                tokens: Any,
                arrays: dict[str, Any],
                is_measured: bool,
                name: str = name,
            ) -> None:
                _reference(spec, tokens, arrays, is_measured)
                if not is_measured:
                    array = arrays[name]
                    array.view(f"u{array.itemsize}")[(-1,) * array.ndim] ^= 1

            elements, differences = check(case, wrong)
            assert elements > 0 and len(differences) == 1, (seed, name)
            seen.add(name)
    assert {"q_out", "k_out", "v_out", "k_cache", "v_scale_cache", "q_scale_out"} <= seen


def _ends_with_nan_or_nothing(case: Case, name: str) -> bool:
    arrays = case.arrays(case.operands, case.copy_of_buffers())
    _reference(case.spec, case.tokens, arrays, False)
    array = arrays[name]
    return array.size == 0 or bool(np.isnan(widen(array[(-1,) * array.ndim][None], F32)[0]))


def test_the_verifier_sees_memory_between_the_elements() -> None:
    def wrong(spec: Spec, tokens: Any, arrays: dict[str, Any], is_measured: bool) -> None:
        _reference(spec, tokens, arrays, is_measured)
        memory = arrays["q_out"].base
        assert isinstance(memory, np.ndarray)
        memory[0] ^= 1

    for seed in range(100):
        case = random_case(np.random.default_rng(seed))
        view = case.views["q_out"]
        is_gap = case.measured == {} and view.buffer == "q_out" and view.offset > 0
        if is_gap and min(view.strides) > 0:
            assert "memory of q_out" in check(case, wrong)[1][0]
            return
    pytest.fail("no case with a gap in front of q_out")


def test_main_says_how_to_repeat_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(20, 3, _reference) == 0
    assert capsys.readouterr().out.endswith(" elements, 0 differ\n")
    assert main(20, 2, lambda *_: None) == 1
    out = capsys.readouterr().out
    assert "--seed 20 --count 1: q_out[0" in out and "2 differ" in out.splitlines()[-1]
