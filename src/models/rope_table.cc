// Fills a rotary table: one sine and cosine for each position and pair, stored where RopeSpec's
// rows have that pair.
#include "qkvfuse/rope_table.hpp"

#include <bit>
#include <cmath>
#include <limits>

#include "base/checked_math.h"
#include "base/half.h"
#include "base/message.h"
#include "models/rope_frequencies.h"

namespace qkvfuse {
namespace {

/// Nearest float whose last bit is set, unless `value` is a float: a narrower type's rounding of it
/// is that of `value`, as if there had been no float between (rounding to odd).
float OddFloat(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value) return nearest;
  const bool is_beyond = std::fabs(static_cast<double>(nearest)) > std::fabs(value);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(nearest) - (is_beyond ? 1U : 0U)) | 1U);
}

void Store(double value, DType dtype, void* data, int64_t element) {
  switch (dtype) {
    case DType::kFloat16:
      static_cast<uint16_t*>(data)[element] = HalfFromFloat(OddFloat(value));
      return;
    case DType::kBFloat16:
      static_cast<uint16_t*>(data)[element] = BFloat16FromFloat(OddFloat(value));
      return;
    default:
      static_cast<float*>(data)[element] = static_cast<float>(value);
  }
}

double LargestOf(DType dtype) {
  if (dtype == DType::kFloat16) return 65504;
  if (dtype == DType::kBFloat16) return static_cast<double>(FloatFromBFloat16(0x7F7F));
  return static_cast<double>(std::numeric_limits<float>::max());
}

/// One of the two tables as rows of entries.
struct Rows {
  const char* name;
  void* data;
  TokenStrides strides;
  int64_t first;  // entry of pair 0
};

/// What both tables have in common.
struct Form {
  DType dtype;
  int64_t width;      // entries of a row
  int64_t copies;     // of a pair in its row
  int64_t pair_step;  // entries from pair to pair
  int64_t copy_step;  // entries from copy to copy
};

Form FormOf(const RopeTableSpec& spec, const RopeSpec& layout) {
  const int64_t half = spec.rotary_dim / 2;
  if (layout.table == RopeSpec::Table::kJoined) return {*layout.dtype, 2 * half, 1, 1, 0};
  if (layout.half_width) return {*layout.dtype, half, 1, 1, 0};
  if (layout.pairing == RopeSpec::Pairing::kInterleaved) return {*layout.dtype, 2 * half, 2, 2, 1};
  return {*layout.dtype, 2 * half, 2, 1, half};
}

Status CheckTableForm(const RopeTableSpec& spec, const RopeSpec& layout) {
  if (layout.table != RopeSpec::Table::kTwoTables && layout.table != RopeSpec::Table::kJoined) {
    return Invalid("table: has a row per token, must have a row for every position");
  }
  if (layout.pairing == RopeSpec::Pairing::kNone) {
    return Invalid("pairing: is none, must be halves or interleaved, where there are tables");
  }
  if (layout.rotary_dim != 0 && layout.rotary_dim != spec.rotary_dim) {
    return Invalid("rotary_dim: is ", layout.rotary_dim, " in the layout, must be 0 or ",
                   spec.rotary_dim, ", as the table's");
  }
  if (spec.max_positions < 1 || layout.max_positions != spec.max_positions) {
    return Invalid("max_positions: is ", spec.max_positions, " and in the layout ",
                   layout.max_positions, ", must be at least 1 and the same");
  }
  if (!layout.dtype || !IsFloat(*layout.dtype)) {
    return Invalid("dtype: is ", layout.dtype ? Name(*layout.dtype) : "absent",
                   ", must be fp32, fp16 or bf16");
  }
  if (layout.table != RopeSpec::Table::kJoined) return {};
  if (layout.half_width) {
    return Invalid("half_width: is set, must not be, where cos and sin are joined");
  }
  if (layout.sin_strides) {
    return Invalid("sin_strides: are set, must not be, where cos and sin are joined");
  }
  return {};
}

/// The elements of the rows are distinct, and their offsets representable.
Status CheckStrides(const Rows& rows, int64_t count, int64_t width, int64_t element_bytes) {
  const int64_t token = rows.strides.token;
  const int64_t channel = rows.strides.channel;
  OffsetRange all;
  int64_t bytes = 0;
  if (!all.AddAxis(width, channel) || !all.AddAxis(count, token) ||
      !CheckedMul(all.highest, element_bytes, &bytes) ||
      !CheckedMul(all.lowest, element_bytes, &bytes)) {
    return Invalid(rows.name, ": its strides ", token, " and ", channel,
                   " reach beyond 2^63 bytes");
  }
  const bool rows_apart = count == 1 || std::abs(token) > (width - 1) * std::abs(channel);
  const bool columns_apart = width == 1 || std::abs(channel) > (count - 1) * std::abs(token);
  const bool are_nonzero = (width == 1 || channel != 0) && (count == 1 || token != 0);
  if (are_nonzero && (rows_apart || columns_apart)) return {};
  return Invalid(rows.name, ": its strides are ", token, " from row to row and ", channel,
                 " from entry to entry, must keep ", count, " rows of ", width, " entries apart");
}

Status CheckRows(const Rows& rows, const RopeTableSpec& spec, const Form& form) {
  const int64_t bytes = SizeOf(form.dtype);
  if (rows.data == nullptr) return Null(rows.name, ": is null, must point to the table");
  if (std::bit_cast<uintptr_t>(rows.data) % static_cast<uintptr_t>(bytes) != 0) {
    return Invalid(rows.name, ": its address must be a multiple of ", bytes, ", the size of ",
                   Name(form.dtype));
  }
  return CheckStrides(rows, spec.max_positions, form.width, bytes);
}

void StorePair(double value, int64_t position, int64_t pair, const Form& form, const Rows& rows) {
  for (int64_t copy = 0; copy < form.copies; ++copy) {
    const int64_t entry = rows.first + pair * form.pair_step + copy * form.copy_step;
    Store(value, form.dtype, rows.data,
          position * rows.strides.token + entry * rows.strides.channel);
  }
}

void FillRows(const RopeWaves& waves, int64_t positions, const Form& form, const Rows& cos,
              const Rows& sin) {
  for (int64_t position = 0; position < positions; ++position) {
    int64_t pair = 0;
    for (const double frequency : waves.frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      StorePair(waves.attention_factor * std::cos(angle), position, pair, form, cos);
      StorePair(waves.attention_factor * std::sin(angle), position, pair, form, sin);
      ++pair;
    }
  }
}

Status Fill(const RopeTableSpec& spec, const RopeSpec& layout, void* cos, void* sin) {
  const Result<RopeWaves> waves = WavesOf(spec);
  if (!waves.ok()) return waves.status();
  if (Status status = CheckTableForm(spec, layout); !status.ok()) return status;
  if (waves->attention_factor > LargestOf(*layout.dtype)) {
    return Invalid("scaling.attention_factor: is ", waves->attention_factor, ", must be at most ",
                   LargestOf(*layout.dtype), ", the largest ", Name(*layout.dtype));
  }
  const bool is_joined = layout.table == RopeSpec::Table::kJoined;
  const Form form = FormOf(spec, layout);
  const TokenStrides packed{TokenStrides::kFollows, form.width, 0, 1};
  const Rows cos_rows{"cos", cos, layout.cos_strides.value_or(packed), 0};
  const Rows sin_rows = is_joined ? Rows{"cos", cos, cos_rows.strides, spec.rotary_dim / 2}
                                  : Rows{"sin", sin, layout.sin_strides.value_or(packed), 0};
  if (is_joined && sin != nullptr) {
    return Invalid("sin: is not null, must be null, where cos and sin are joined");
  }
  if (!is_joined && sin == cos && cos != nullptr) {
    return Invalid("sin: is at the address of cos, must be another table");
  }
  for (const Rows& rows : {cos_rows, sin_rows}) {
    if (Status status = CheckRows(rows, spec, form); !status.ok()) return status;
  }
  FillRows(*waves, spec.max_positions, form, cos_rows, sin_rows);
  return {};
}

}  // namespace

Status FillRopeTable(const RopeTableSpec& spec, const RopeSpec& layout, void* cos,
                     void* sin) noexcept try {
  const ScopedFpEnvironment environment;
  return Fill(spec, layout, cos, sin);
} catch (...) {
  return Status(StatusCode::kOutOfMemory, {});
}

}  // namespace qkvfuse
