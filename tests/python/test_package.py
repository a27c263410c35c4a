"""The source distribution has what a build needs, and the installed package what users look for."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import tarfile

import pytest

import qkvfuse

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_source_distribution(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("build")
    subprocess.run(
        [sys.executable, "-m", "build", "--sdist", "--outdir", str(tmp_path), str(ROOT)],
        check=True,
        capture_output=True,
        timeout=300,
    )
    (archive,) = tmp_path.glob("qkvfuse-*.tar.gz")
    with tarfile.open(archive) as file:
        names = {name.split("/", 1)[1] for name in file.getnames() if "/" in name}
    wanted = {"CMakeLists.txt", "pyproject.toml", "LICENSE", "README.md"}
    for folder, pattern in [
        ("src", "*.cc"),
        ("src", "*.h"),
        ("include", "*.hpp"),
        ("cmake", "*.cmake"),
        ("python", "*.py"),
        ("python/bindings", "*.*"),
    ]:
        wanted |= {str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob(pattern)}
    assert len(wanted) > 150
    assert not wanted - names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_installed_package() -> None:
    folder = pathlib.Path(qkvfuse.__file__).parent
    assert (folder / "py.typed").exists() and (folder / "_core.pyi").exists()
    header = (ROOT / "include/qkvfuse/runtime.hpp").read_text(encoding="utf-8")
    parts = [line.split()[-1] for line in header.splitlines() if "define QKVFUSE_VERSION_" in line]
    assert qkvfuse.__version__ == ".".join(parts)
    for name in qkvfuse.__all__:
        member = getattr(qkvfuse, name)
        assert name == "LAYOUTS" or member.__doc__, name
