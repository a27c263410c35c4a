"""What a mutant does: tables of operators, calls, members and enumerators and what takes their
place. sites.py looks for them in the sources; a row more is a kind of mutant more.
"""

# Binary operators. None of them changes what the operands may be.
OPERATORS = {
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "==": ("!=",),
    "!=": ("==",),
    "+": ("-",),
    "-": ("+",),
    "*": ("/", "+"),
    "/": ("*",),
    "%": ("/",),
    "&&": ("||",),
    "||": ("&&",),
    "&": ("|",),
    "|": ("&",),
    "^": ("|",),
    "<<": (">>",),
    ">>": ("<<",),
    "+=": ("-=",),
    "-=": ("+=",),
    "*=": ("/=",),
    "/=": ("*=",),
    "|=": ("&=",),
    "&=": ("|=",),
}

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")

# Prefix operators that are left out.
DROPPED_PREFIXES = ("!", "-", "~")


def both_ways(*pairs):
    """A table of pairs of words that take each other's place; a word may have several others."""
    table = {}
    for a, b in pairs:
        table.setdefault(a, []).append(b)
        table.setdefault(b, []).append(a)
    return table


# Functions with the same parameters.
CALLS = both_ways(
    ("hn::Add", "hn::Sub"),
    ("hn::Mul", "hn::Add"),
    ("hn::Div", "hn::Mul"),
    ("hn::Min", "hn::Max"),
    ("hn::MulAdd", "hn::NegMulAdd"),
    ("hn::MulAdd", "hn::MulSub"),
    ("hn::Lt", "hn::Le"),
    ("hn::Gt", "hn::Ge"),
    ("hn::Eq", "hn::Ne"),
    ("hn::And", "hn::Or"),
    ("hn::AndNot", "hn::And"),
    ("hn::Xor", "hn::Or"),
    ("hn::ShiftLeft", "hn::ShiftRight"),
    ("hn::ConcatEven", "hn::ConcatOdd"),
    ("hn::ConcatLowerLower", "hn::ConcatUpperUpper"),
    ("hn::InterleaveLower", "hn::InterleaveUpper"),
    ("hn::LowerHalf", "hn::UpperHalf"),
    ("hn::DupEven", "hn::DupOdd"),
    ("hn::Round", "hn::Trunc"),
    ("hn::NearestInt", "hn::Trunc"),
    ("hn::IfThenElseZero", "hn::IfThenZeroElse"),
    ("hn::AllFalse", "hn::AllTrue"),
    ("Fma", "FmaSub"),
    ("HWY_MIN", "HWY_MAX"),
    ("std::min", "std::max"),
    ("FloorDivide", "CeilDivide"),
)

# Functions of one argument that give it back.
DROPPED_CALLS = ("hn::Abs", "hn::Neg", "hn::Not", "hn::Round", "std::abs")

# Members of the same type, strides above all. "()" are member functions.
MEMBERS = both_ways(
    ("q", "k"),
    ("k", "v"),
    ("token_stride", "head_stride"),
    ("head_stride", "channel_stride"),
    ("channel_chunk", "channel_chunk_stride"),
    ("row_stride", "row_chunk_stride"),
    ("block_stride", "row_stride"),
    ("block_size", "blocks"),
    ("row_chunk", "block_size"),
    ("token", "head"),
    ("head", "channel"),
    ("token", "batch"),
    ("batch", "sequence"),
    ("cos_token_stride", "sin_token_stride"),
    ("cos_channel_stride", "sin_channel_stride"),
    ("cos", "sin"),
    ("first_token", "first_head"),
    ("tokens", "heads"),
    ("batch_stride", "token_stride"),
    ("scale", "offset"),
    ("begin", "end"),
    ("lowest", "highest"),
    ("low", "high"),
    ("rest_low", "rest_high"),
    ("sizes", "strides"),
    ("channels", "padded"),
    ("k_cache", "v_cache"),
    ("k_scale", "v_scale"),
    ("k_offset", "v_offset"),
    ("q_gamma", "k_gamma"),
    ("q_out", "k_out"),
    ("k_out", "v_out"),
)

# Enumerators and constants of the same type.
ENUMERATORS = both_ways(
    ("DType::kFloat16", "DType::kBFloat16"),
    ("DType::kInt8", "DType::kInt32"),
    ("DType::kInt32", "DType::kInt64"),
    ("DType::kFloat32", "DType::kFloat16"),
    ("Operand::kCos", "Operand::kSin"),
    ("Operand::kKCache", "Operand::kVCache"),
    ("Operand::kKScale", "Operand::kVScale"),
    ("Operand::kKOffset", "Operand::kVOffset"),
    ("Operand::kQGamma", "Operand::kKGamma"),
    ("Operand::kWeightScale", "Operand::kTokenScale"),
    ("Role::kParameter", "Role::kTokenParameter"),
    ("Role::kRows", "Role::kCache"),
    ("Transform::kNone", "Transform::kRope"),
    ("Transform::kRope", "Transform::kNormRope"),
    ("BlockShape::kManyHeads", "BlockShape::kManyTokens"),
    ("SlotMode::kSlotPerToken", "SlotMode::kStartPerSequence"),
    ("Overlap::kSome", "Overlap::kUnknown"),
    ("Overlap::kNone", "Overlap::kSome"),
    ("kSkippedRow", "0"),
)
