"""`python -m qkvfuse`: the commands' options. What a command does is in `qkvfuse.commands`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from . import __version__
from .commands import CheckFailed, UsageError

_EXAMPLES = """\
examples:
  python -m qkvfuse run call.npz --set x_dtype=bfloat16 --set heads=32,8,8 --set head_dim=128
  python -m qkvfuse explain --config Qwen3-8B/config.json --cache int8+head --tokens 64
  python -m qkvfuse verify --cases 10000
  python -m qkvfuse bench --filter qwen3 --save bench.json
  python -m qkvfuse plot roofline bench.json -o roofline.svg
  python -m qkvfuse plot layout pa_nz --slots 0,1,5 -o layout.svg

exit codes: 0 ok, 1 a check failed, 2 wrong usage
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose mistakes are one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog.removeprefix('python -m ')}: {message}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; `arguments` as in sys.argv[1:].

    Returns:
        The exit code: 0, or 1 where a check failed, or 2 after a mistake of the user's.
    """
    options = _parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except OSError as error:
        name = "" if error.filename is None else f"{error.filename}: "
        print(f"qkvfuse {options.command}: {name}{error.strerror or error}", file=sys.stderr)
        return 2
    except UsageError as error:
        print(f"qkvfuse {options.command}: {error}", file=sys.stderr)
        return 2
    except CheckFailed as error:
        print(f"qkvfuse {options.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m qkvfuse",
        description="Everything between the QKV projection and attention in one pass.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"qkvfuse {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_run(commands.add_parser("run", help="one call, from a file of arrays to one of outputs"))
    _add_explain(commands.add_parser("explain", help="what a plan does, why, and its arrays"))
    _add_verify(commands.add_parser("verify", help="random calls against qkvfuse.reference"))
    _add_bench(commands.add_parser("bench", help="times against NumPy and against a copy"))
    _add_plot(commands.add_parser("plot", help="drawings of layouts, errors and benchmarks"))
    return parser


def _add_spec(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--spec", metavar="JSON", help="fields of a Spec: JSON, or a file with it")
    parser.add_argument(
        "--set",
        dest="words",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one field: heads=32,8,8, q_norm=per_head, k_cache.layout=paged_nhd; repeatable",
    )


def _add_caches(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--layout",
        default="paged_nhd",
        help="of the caches; or K's and V's: x_split_k,transposed (paged_nhd)",
    )


_CACHE_HELP = (
    "a type, 16bit: x's, with any of +offset, +multiply, +dynamic, +head, +tensor: int8+head"
)


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Arrays are taken by the names of Plan.run's arguments, or of the parameters of the npu_ "
        'function that the attributes name as "operator". Attributes are JSON, fields of a Spec: '
        'the entry "spec" of a .npz or of the metadata of a .safetensors, or --spec and --set.'
    )
    parser.add_argument("file", type=Path, help=".npz or .safetensors")
    _add_spec(parser)
    parser.add_argument("--output", "-o", type=Path, help="instead of FILE.out.npz")
    parser.add_argument("--tokens", metavar="T", help="or B,S; else what the shape of x says")
    parser.add_argument("--threads", type=int, default=0, help="0: as the work is worth (0)")
    parser.add_argument("--lenient", action="store_true", help="take repeated slots, scales of 0")
    parser.add_argument("--reference", action="store_true", help="compute with qkvfuse.reference")

    def run(options: argparse.Namespace) -> None:
        from .commands import run

        run.run(
            run.Options(
                file=options.file,
                output=options.output,
                spec=options.spec,
                words=tuple(options.words),
                tokens=options.tokens,
                threads=options.threads,
                is_strict=not options.lenient,
                is_reference=options.reference,
            )
        )

    parser.set_defaults(run=run)


def _add_explain(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, help="a model's config.json")
    parser.add_argument("--dtype", help="of x: float32, float16 or bfloat16; else the config's")
    parser.add_argument("--cache", default="16bit", help=f"{_CACHE_HELP} (16bit)")
    _add_caches(parser)
    parser.add_argument("--blocks", type=int, default=1024, help="of the caches (1024)")
    parser.add_argument("--block-size", type=int, default=16, help="rows of a block (16)")
    _add_spec(parser)
    parser.add_argument("--tokens", type=int, default=1, help="of a call (1)")

    def run(options: argparse.Namespace) -> None:
        from .commands import explain

        print(
            explain.explain(
                explain.Options(
                    config=options.config,
                    dtype=options.dtype,
                    cache=options.cache,
                    layout=options.layout,
                    blocks=options.blocks,
                    block_size=options.block_size,
                    spec=options.spec,
                    words=tuple(options.words),
                    tokens=options.tokens,
                )
            )
        )

    parser.set_defaults(run=run)


def _add_verify(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=_at_least(0), default=0, help="of the first case (0)")
    parser.add_argument(
        "--cases", "--count", type=_at_least(1), help="1000, or what --seconds has time for"
    )
    parser.add_argument("--seconds", type=_at_least(0.0), help="begin no case after so many")

    def run(options: argparse.Namespace) -> int:
        from .verify import main as verify

        return verify(options.seed, options.cases, seconds=options.seconds)

    parser.set_defaults(run=run)


_Number = TypeVar("_Number", int, float)


def _at_least(smallest: _Number) -> Callable[[str], _Number]:
    """Takes numbers of the type of the smallest one that is allowed."""

    def number(text: str) -> _Number:
        try:
            value = type(smallest)(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"is {text!r}, must be a number") from None
        if not value >= smallest:
            raise argparse.ArgumentTypeError(f"is {text}, must be at least {smallest}")
        return value

    return number


def _numbers(text: str) -> tuple[int, ...]:
    """The numbers of "1,64"."""
    try:
        return tuple(int(number) for number in text.split(","))
    except ValueError:
        message = f"is {text!r}, must be numbers with commas between them"
        raise argparse.ArgumentTypeError(message) from None


def _add_bench(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, help="a model's config.json; else a few models")
    parser.add_argument("--tokens", type=_numbers, default=(1, 64, 2048), help="1,64,2048")
    parser.add_argument("--cache", action="append", help=f"{_CACHE_HELP}; repeatable")
    _add_caches(parser)
    parser.add_argument("--threads", type=_at_least(0), default=1, help="of Plan.run (1)")
    parser.add_argument("--filter", default="", metavar="REGEX", help="rows whose name has it")
    parser.add_argument("--seconds", type=_at_least(0.0), default=0.3, help="of a row (0.3)")
    parser.add_argument("--save", type=Path, metavar="FILE.json", help="for plot roofline")

    def run(options: argparse.Namespace) -> None:
        from .commands import bench

        defaults = bench.Options()
        bench.bench(
            bench.Options(
                config=options.config,
                tokens=options.tokens,
                caches=tuple(options.cache or defaults.caches),
                layout=options.layout,
                threads=options.threads,
                pattern=options.filter,
                seconds=options.seconds,
                save=options.save,
            )
        )

    parser.set_defaults(run=run)


def _add_plot(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    layout = kinds.add_parser("layout", help="which token has which addresses of a cache")
    _add_plot_layout(layout)
    error = kinds.add_parser("error", help="quantisation error of every head and channel")
    _add_plot_error(error)
    roofline = kinds.add_parser("roofline", help="bytes per second under the roof of a copy")
    _add_plot_roofline(roofline)
    for kind in (layout, error, roofline):
        kind.add_argument("-o", "--output", type=Path, required=True, help=".svg, .png or .pdf")


def _add_plot_layout(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="a name of qkvfuse.LAYOUTS, or the names of an array's axes")
    for name, default in (("blocks", 2), ("block-size", 4), ("heads", 2), ("head-dim", 32)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"({default})")
    parser.add_argument("--chunk", type=int, default=0, help="channels or rows of a chunk")
    parser.add_argument("--dtype", default="int8", help="of the cache: bytes of a chunk (int8)")
    parser.add_argument("--slots", type=_numbers, default=(0, 1, 5), help="highlighted (0,1,5)")

    def run(options: argparse.Namespace) -> None:
        from .commands import plot_layout

        plot_layout.draw(
            plot_layout.Layout(
                name=options.name,
                blocks=options.blocks,
                block_size=options.block_size,
                heads=options.heads,
                head_dim=options.head_dim,
                chunk=options.chunk,
                dtype=options.dtype,
                slots=options.slots,
            ),
            options.output,
        )

    parser.set_defaults(run=run)


def _add_plot_error(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Values are written to 8-bit caches with scales of several granularities and read back. "
        "NAME_after, or NAME_codes with NAME_scale and NAME_offset, are drawn too where the file "
        "has them."
    )
    parser.add_argument("file", type=Path, help=".npz or .safetensors with the values")
    parser.add_argument("--name", default="k", help="of the array [tokens, heads, head_dim] (k)")
    parser.add_argument("--dtype", default="int8", help="int8, fp8_e4m3 or fp8_e5m2 (int8)")

    def run(options: argparse.Namespace) -> None:
        from .commands import plot_error

        plot_error.draw(options.file, options.name, options.dtype, options.output)

    parser.set_defaults(run=run)


def _add_plot_roofline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="of bench --save, this one's or the C++ program's")
    parser.add_argument("--filter", default="", metavar="REGEX", help="rows whose name has it")

    def run(options: argparse.Namespace) -> None:
        from .commands import plot_roofline

        plot_roofline.draw(options.file, options.filter, options.output)

    parser.set_defaults(run=run)


if __name__ == "__main__":
    sys.exit(main())
