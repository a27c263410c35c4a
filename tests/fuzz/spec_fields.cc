#include "spec_fields.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace qkvfuse::fuzz {
namespace {

constexpr double kEpsilons[] = {0, -1, 1e-300, 1e300, 1e-6};

/// Collects what can change in a field, by its type.
class Fields {
 public:
  explicit Fields(FuzzedDataProvider& bytes) : bytes_(bytes) {}

  void Add(int64_t& number) {
    changes_.emplace_back([this, &number] { number = Disturbed(number, bytes_); });
  }
  void Add(bool& flag) {
    changes_.emplace_back([&flag] { flag = !flag; });
  }
  void Add(double& number) {
    changes_.emplace_back([this, &number] {
      number = bytes_.ConsumeBool() ? bytes_.PickValueInArray(kEpsilons)
                                    : bytes_.ConsumeFloatingPoint<double>();
    });
  }
  void Add(DType& dtype) {
    changes_.emplace_back(
        [this, &dtype] { dtype = static_cast<DType>(bytes_.ConsumeIntegralInRange(0, 6)); });
  }
  void Add(SlotMode& mode) {
    changes_.emplace_back(
        [this, &mode] { mode = static_cast<SlotMode>(bytes_.ConsumeIntegralInRange(-1, 3)); });
  }
  void Add(std::optional<DType>& dtype) {
    changes_.emplace_back([this, &dtype] {
      if (bytes_.ConsumeBool()) {
        dtype = static_cast<DType>(bytes_.ConsumeIntegralInRange(0, 6));
      } else {
        dtype.reset();
      }
    });
  }
  void Add(StridedShape& shape) {
    changes_.emplace_back([this, &shape] { shape.rank = bytes_.ConsumeIntegralInRange(-1, 9); });
    for (int64_t& dim : shape.dims) Add(dim);
    for (int64_t& stride : shape.strides) Add(stride);
  }
  void Add(std::optional<TokenStrides>& strides) {
    changes_.emplace_back([&strides] {
      if (strides) {
        strides.reset();
      } else {
        strides.emplace();
      }
    });
    if (!strides) return;
    for (int64_t* number : {&strides->batch, &strides->token, &strides->head, &strides->channel}) {
      Add(*number);
    }
  }
  void Add(HeadCounts& heads) {
    for (int64_t* number : {&heads.q, &heads.k, &heads.v}) Add(*number);
  }
  void Add(CacheSpec& cache) {
    CacheLayout& l = cache.layout;
    for (int64_t* number : {&l.blocks, &l.block_size, &l.block_stride, &l.head_stride, &l.row_chunk,
                            &l.row_chunk_stride, &l.row_stride, &l.channel_chunk,
                            &l.channel_chunk_stride, &l.channel_stride}) {
      Add(*number);
    }
    changes_.emplace_back([&l] { l.name = nullptr; });
    Add(cache.dtype);
    Add(cache.has_offset);
    Add(cache.scale_shape);
    Add(cache.offset_shape);
  }
  void Add(SlotSpec& slots) {
    Add(slots.mode);
    Add(slots.dtype);
    Add(slots.stride);
  }

  void ChangeOne() { changes_[bytes_.ConsumeIntegralInRange<size_t>(0, changes_.size() - 1)](); }

 private:
  FuzzedDataProvider& bytes_;
  std::vector<std::function<void()>> changes_;
};

void Collect(QkvRmsNormRopeCacheSpec& s, Fields& fields) {
  fields.Add(s.dtype);
  fields.Add(s.epsilon);
  fields.Add(s.before_quant);
  for (auto* strides : {&s.qkv_strides, &s.cos_strides, &s.sin_strides, &s.q_out_strides,
                        &s.q_before_quant_strides, &s.k_out_strides, &s.v_out_strides}) {
    fields.Add(*strides);
  }
  for (auto* shape : {&s.q_gamma_shape, &s.k_gamma_shape}) fields.Add(*shape);
}

void Collect(DequantRopeQuantKvcacheSpec& s, Fields& fields) {
  fields.Add(s.x_dtype);
  fields.Add(s.dtype);
  fields.Add(s.kv_output);
  fields.Add(s.has_token_scale);
  fields.Add(s.bias);
  for (auto* strides : {&s.x_strides, &s.cos_strides, &s.sin_strides, &s.q_out_strides,
                        &s.k_out_strides, &s.v_out_strides}) {
    fields.Add(*strides);
  }
  for (auto* shape : {&s.weight_scale_shape, &s.token_scale_shape, &s.bias_shape}) {
    fields.Add(*shape);
  }
}

template <typename Spec>
void DisturbSpec(Spec& spec, FuzzedDataProvider& bytes) {
  const int changes = bytes.ConsumeIntegralInRange(0, 4);
  for (int i = 0; i < changes; ++i) {
    Fields fields(bytes);  // anew: a change may have added some
    fields.Add(spec.heads);
    fields.Add(spec.head_dim);
    fields.Add(spec.slots);
    fields.Add(spec.k_cache);
    fields.Add(spec.v_cache);
    Collect(spec, fields);
    fields.ChangeOne();
  }
}

}  // namespace

void Disturb(QkvRmsNormRopeCacheSpec& spec, FuzzedDataProvider& bytes) { DisturbSpec(spec, bytes); }

void Disturb(DequantRopeQuantKvcacheSpec& spec, FuzzedDataProvider& bytes) {
  DisturbSpec(spec, bytes);
}

}  // namespace qkvfuse::fuzz
