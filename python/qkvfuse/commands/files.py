"""Files of arrays, .npz and .safetensors, with a JSON text that says what the arrays are for."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes  # noqa: F401  (registers bfloat16 and float8 with NumPy)
import numpy as np
import numpy.typing as npt

from . import UsageError

Array = npt.NDArray[Any]

# The entry of a .npz, or of the metadata of a .safetensors, that holds the attributes as JSON.
ATTRIBUTES = "spec"

_NUMPY_NAMES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I8": "int8",
}


class Content(NamedTuple):
    """What a file holds.

    Attributes:
        arrays: by name. Those of a .npz that were bfloat16 or float8 are of a void dtype.
        attributes: JSON, or None where the file has none.
    """

    arrays: dict[str, Array]
    attributes: str | None


def read(path: Path) -> Content:
    """The arrays and attributes of a file.

    Raises:
        UsageError: no such file, neither .npz nor .safetensors, or broken.
    """
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    return (_read_npz if _kind(path) == ".npz" else _read_safetensors)(path)


def write(path: Path, arrays: dict[str, Array], attributes: str) -> None:
    """Writes the arrays, and the attributes beside them.

    Raises:
        UsageError: the name ends neither with .npz nor with .safetensors.
    """
    packed = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    if _kind(path) == ".npz":
        entries: dict[str, Any] = {ATTRIBUTES: np.array(attributes)}
        for name, array in packed.items():
            # NumPy cannot read ml_dtypes' types back, float8_e5m2 not at all.
            is_own = array.dtype.isbuiltin != 2
            entries[name] = array if is_own else array.view(f"V{array.dtype.itemsize}")
        with path.open("wb") as file:
            np.savez(file, **entries)
        return
    _require_safetensors()
    from safetensors.numpy import save

    path.write_bytes(save(packed, {ATTRIBUTES: attributes}))


def is_void(array: Array) -> bool:
    """Whether the elements are mere bytes, as a .npz brings bfloat16 and float8 back."""
    return array.dtype.kind == "V" and array.dtype.isbuiltin == 0


def _kind(path: Path) -> str:
    if path.suffix not in (".npz", ".safetensors"):
        raise UsageError(f"{path}: is neither .npz nor .safetensors, must be one of them")
    return path.suffix


def _read_npz(path: Path) -> Content:
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path}: cannot be read as .npz: {error}") from error
    attributes = arrays.pop(ATTRIBUTES, None)
    return Content(arrays, None if attributes is None else str(attributes))


def _read_safetensors(path: Path) -> Content:
    _require_safetensors()
    import safetensors

    try:
        tensors: Any = safetensors.deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata: dict[str, str] = file.metadata() or {}
    except safetensors.SafetensorError as error:
        raise UsageError(f"{path}: cannot be read as .safetensors: {error}") from error
    arrays = {}
    for name, tensor in tensors:
        dtype = tensor["dtype"]
        if dtype not in _NUMPY_NAMES:
            allowed = ", ".join(_NUMPY_NAMES)
            raise UsageError(f"{path}: {name}: type is {dtype}, must be one of {allowed}")
        # bytearray: memory that may be written, as outputs are.
        values = np.frombuffer(bytearray(tensor["data"]), np.dtype(_NUMPY_NAMES[dtype]))
        arrays[name] = values.reshape(tensor["shape"])
    return Content(arrays, metadata.get(ATTRIBUTES))


def _require_safetensors() -> None:
    try:
        import safetensors  # noqa: F401
    except ImportError:
        raise UsageError(
            "safetensors: is not installed, must be for .safetensors: "
            'pip install "qkvfuse[safetensors]"'
        ) from None
