// SinkKind::kOutputs: finished heads in tiles to destinations that the emitters of sinks-inl.h do
// not know: fp32, fp8, scales that multiply, scales of their own for each token and head
// (docs/numerics.md, sections 5 and 6).
#include <cstring>

#include "kernels/block-inl.h"
#include "kernels/tile-inl.h"

#if defined(QKVFUSE_KERNELS_OUTPUTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef QKVFUSE_KERNELS_OUTPUTS_INL_H_
#undef QKVFUSE_KERNELS_OUTPUTS_INL_H_
#else
#define QKVFUSE_KERNELS_OUTPUTS_INL_H_
#endif

HWY_BEFORE_NAMESPACE();
namespace qkvfuse::kernels {
namespace HWY_NAMESPACE {

// Codes of z.

struct Int8Code {
  static constexpr float kLargest = 127.0f;
  template <class D>
  static HWY_INLINE void Store(D d, VecOf<D> z, uint8_t* to) {
    StoreCodes(d, CodesOf(d, z), reinterpret_cast<int8_t*>(to));
  }
};

/// An fp8 type of so many bits of mantissa.
template <int kMantissaBits, int kBias, int kLargestValue>
struct Float8Code {
  static constexpr float kLargest = static_cast<float>(kLargestValue);

  template <class D>
  static HWY_INLINE void Store(D d, VecOf<D> z, uint8_t* to) {
    const hn::RebindToSigned<D> di32;
    const hn::Rebind<uint8_t, D> du8;
    hn::StoreU(hn::DemoteTo(du8, hn::BitCast(di32, CodesOfFloat8(d, z))), du8, to);
  }

 private:
  template <class D>
  static HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> CodesOfFloat8(D d, VecOf<D> z) {
    constexpr int kDropped = 23 - kMantissaBits;
    constexpr float kSmallestNormal = SmallestNormal();
    // Its last bit is the smallest step of the type.
    constexpr float kRounderOfSubnormals = kSmallestNormal * static_cast<float>(1 << kDropped);
    const hn::RebindToUnsigned<D> du32;
    const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(du32, z)), hn::Set(du32, 0x80u));
    const auto size = hn::Min(hn::Abs(z), hn::Set(d, kLargest));
    const auto bits = hn::BitCast(du32, size);
    const auto is_odd = hn::And(hn::ShiftRight<kDropped>(bits), hn::Set(du32, 1u));
    const auto rounded = hn::ShiftRight<kDropped>(
        hn::Add(bits, hn::Add(is_odd, hn::Set(du32, (1u << (kDropped - 1)) - 1))));
    const auto normal =
        hn::Sub(rounded, hn::Set(du32, static_cast<uint32_t>(127 - kBias) << kMantissaBits));
    const auto rounder = hn::Set(d, kRounderOfSubnormals);
    const auto subnormal =
        hn::Sub(hn::BitCast(du32, hn::Add(size, rounder)), hn::BitCast(du32, rounder));
    const auto is_subnormal = hn::RebindMask(du32, hn::Lt(size, hn::Set(d, kSmallestNormal)));
    const auto code = hn::Or(hn::IfThenElse(is_subnormal, subnormal, normal), sign);
    return hn::IfThenElse(hn::RebindMask(du32, hn::IsNaN(z)), hn::Set(du32, 0x7Fu), code);
  }

  static constexpr float SmallestNormal() {
    float value = 1.0f;
    for (int i = 1; i < kBias; ++i) value *= 0.5f;
    return value;
  }
};
using E4M3Code = Float8Code<3, 7, 448>;
using E5M2Code = Float8Code<2, 15, 57344>;

/// The scales of one head; of kDynamic a single one.
struct HeadScales {
  const float* scale;
  const float* offset;
};

/// Codes of a head's `count` channels.
template <class Code, ScaleRule kRule, bool kHasOffset>
void EncodeHead(const float* y, int64_t count, const HeadScales& scales, uint8_t* to) {
  ForEachVector(0, count, [&](auto d, int64_t i) QKVFUSE_LAMBDA {
    auto z = hn::LoadU(d, y + i);
    if constexpr (kRule == ScaleRule::kDynamic) {
      z = hn::Div(z, hn::Set(d, *scales.scale));
    } else if constexpr (kRule == ScaleRule::kDivide) {
      z = hn::Div(z, hn::LoadU(d, scales.scale + i));
    } else {
      z = hn::Mul(z, hn::LoadU(d, scales.scale + i));
    }
    if constexpr (kHasOffset) z = hn::Add(z, hn::LoadU(d, scales.offset + i));
    Code::Store(d, z, to + i);
  });
}

/// The largest |y|; NaN is never larger.
HWY_INLINE float LargestOf(const float* y, int64_t count) {
  const TileTag d;
  auto largest = hn::Zero(d);
  HWY_ALIGN float lanes[kTileLanes];
  int64_t i = 0;
  for (; i + kTileLanes <= count; i += kTileLanes) {
    const auto size = hn::Abs(hn::LoadU(d, y + i));
    largest = hn::IfThenElse(hn::Gt(size, largest), size, largest);
  }
  hn::StoreU(largest, d, lanes);
  float result = 0.0f;
  for (const float lane : lanes) result = lane > result ? lane : result;
  for (; i < count; ++i) {
    const float size = std::fabs(y[i]);
    result = size > result ? size : result;
  }
  return result;
}

// How a finished head is written: write(y, head, row of its own, element of its scale).

struct FloatWriter {
  using Element = float;
  int64_t count;

  HWY_INLINE void Write(const float* y, int64_t /*head*/, float* to, float* /*scale*/) const {
    std::memcpy(to, y, static_cast<size_t>(count) * sizeof(float));
  }
};

template <class Code, ScaleRule kRule, bool kHasOffset = false>
struct CodeWriter {
  using Element = uint8_t;
  int64_t count;
  const float* scale;
  const float* offset;

  HWY_INLINE void Write(const float* y, int64_t head, uint8_t* to, float* scale_out) const {
    HeadScales scales{scale, offset};
    if constexpr (kRule == ScaleRule::kDynamic) {
      *scale_out = LargestOf(y, count) / Code::kLargest;
      if (*scale_out == 0.0f) {
        std::memset(to, 0, static_cast<size_t>(count));
        return;
      }
      scales.scale = scale_out;
    } else {
      scales.scale += head * count;
      if (kHasOffset) scales.offset += head * count;
    }
    EncodeHead<Code, kRule, kHasOffset>(y, count, scales, to);
  }
};

/// The finished heads of a block, [heads, tokens, padded].
struct FinishedHeads {
  const float* tiles;
  int64_t padded;
};

/// Writes a block to one output, through a copy of ours where the head's channels do not lie
/// together.
template <class Writer>
void WriteBlock(const GroupTask& task, const Tile& tile, const Block& block,
                const FinishedHeads& heads, const Output& output, const Writer& writer) {
  using Element = typename Writer::Element;
  const Destination& to = output.to;
  const bool lie_together =
      to.channel_stride == 1 && (to.channel_chunk == 0 || to.channel_chunk == task.head_dim);
  Element ours[kMaxHeadDim];
  for (int64_t at = 0; at < block.heads * block.tokens; ++at) {
    const int64_t i = block.first + at % block.tokens;
    const int64_t row = to.is_cache ? tile.cache_rows[i] : 0;
    if (row == kSkippedRow) continue;
    const int64_t head = block.first_head + at / block.tokens;
    const int64_t token = tile.first_token + i;
    float* scale = nullptr;
    if (output.scales.data != nullptr) {
      const int64_t scale_row = to.is_cache ? tile.scale_rows[i] : 0;
      scale = static_cast<float*>(output.scales.data) +
              HeadOffset(output.scales, token, scale_row, head);
    }
    Element* const out = static_cast<Element*>(to.data) + HeadOffset(to, token, row, head);
    writer.Write(heads.tiles + at * heads.padded, head, lie_together ? out : ours, scale);
    if (!lie_together) ScatterRun(ours, 0, task.head_dim, to, out);
  }
}

template <class Code>
void WriteCodes(const GroupTask& task, const Tile& tile, const Block& block,
                const FinishedHeads& heads, const Output& output) {
  const int64_t count = task.head_dim;
  const float* const scale = output.scale;
  const float* const offset = output.offset;
  constexpr bool kTakesOffset = std::is_same_v<Code, Int8Code>;
  const auto write = [&](const auto& writer) {
    WriteBlock(task, tile, block, heads, output, writer);
  };
  switch (output.rule) {
    case ScaleRule::kDynamic:
      return write(CodeWriter<Code, ScaleRule::kDynamic>{count, nullptr, nullptr});
    case ScaleRule::kDivide:
      // The codes of int8 have an emitter of their own.
      if constexpr (!kTakesOffset) {
        write(CodeWriter<Code, ScaleRule::kDivide>{count, scale, nullptr});
      }
      return;
    case ScaleRule::kMultiply:
      if constexpr (kTakesOffset) {
        if (offset != nullptr) {
          return write(CodeWriter<Code, ScaleRule::kMultiply, true>{count, scale, offset});
        }
      }
      return write(CodeWriter<Code, ScaleRule::kMultiply>{count, scale, nullptr});
  }
}

/// Writes a block to an output of fp32, fp8, or int8 of a rule that is not kDivide.
inline void WriteOutput(const GroupTask& task, const Tile& tile, const Block& block,
                        const FinishedHeads& heads, const Output& output) {
  switch (output.dtype) {
    case DType::kFloat8E4M3:
      return WriteCodes<E4M3Code>(task, tile, block, heads, output);
    case DType::kFloat8E5M2:
      return WriteCodes<E5M2Code>(task, tile, block, heads, output);
    case DType::kInt8:
      return WriteCodes<Int8Code>(task, tile, block, heads, output);
    default:
      return WriteBlock(task, tile, block, heads, output, FloatWriter{task.head_dim});
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace qkvfuse::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target guard
