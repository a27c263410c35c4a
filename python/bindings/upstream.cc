// The two operators of Ascend, from arrays with the names of torch_npu.

#include <initializer_list>
#include <optional>
#include <utility>

#include "array.h"
#include "doors.h"
#include "options.h"
#include "plain.h"
#include "qkvfuse/dequant_rope_quant_kvcache.hpp"
#include "qkvfuse/qkv_rms_norm_rope_cache.hpp"

namespace qkvfuse::python {
namespace {

// Dtypes of arguments, for sentences about those that the core does not know.
constexpr const char* k16Bit = "float16 or bfloat16";
constexpr const char* kCaches = "int8, float16 or bfloat16";
constexpr const char* kFloat = "float32";

constexpr DoorRules kRules{NameStyle::kSnakeCase, false, true};

/// An argument that may be None, and its memory.
class Optional {
 public:
  Optional(nb::handle object, const char* name, const char* allowed, Access access) {
    if (!object.is_none()) array_.emplace(object, name, access, allowed);
  }
  [[nodiscard]] const TensorView* view() const { return array_ ? &array_->view() : nullptr; }

 private:
  std::optional<Array> array_;
};

Integers IntegersOf(const std::vector<int64_t>& values) {
  static constexpr int64_t kNothing = 0;  // an empty list is given, not absent
  return {values.empty() ? &kNothing : values.data(), static_cast<int64_t>(values.size())};
}

using Word = std::optional<std::string>;

Word WordOf(nb::handle object, const char* name) {
  if (object.is_none()) return std::nullopt;
  Word word = PlainOf<std::string>(object, name);
  if (word->find('\0') == std::string::npos) return word;
  RefuseValue(name, ": has a null character, must be a word");
}

const char* TextOf(const Word& word) { return word ? word->c_str() : nullptr; }

/// A new output of a bound call: its view, before there is memory for it.
TensorView Planned(DType dtype, std::initializer_list<int64_t> dims) {
  TensorView view;
  view.dtype = dtype;
  view.shape = StridedShape::Contiguous(dims);
  return view;
}

/// Calls allocate(shape, dtype) of Python.
nb::object Allocated(nb::handle allocate, const TensorView& view) {
  nb::list shape;
  for (int axis = 0; axis < view.shape.rank; ++axis) {
    shape.append(view.shape.dims[static_cast<size_t>(axis)]);
  }
  return allocate(nb::tuple(shape), NumpyName(view.dtype));
}

template <typename Spec>
void RunBound(const BoundCall<Spec>& call, nb::handle strict, nb::handle threads) {
  PlanOptions options;
  options.strict = PlainOf<bool>(strict, "strict");
  const RunOptions run_options = RunOptionsOf(threads);
  Status status;
  {
    const nb::gil_scoped_release release;
    const Result<Plan> plan = MakePlan(call, options);
    status = plan.ok() ? plan->Run(call.tensors, call.tokens, run_options) : plan.status();
  }
  RaiseUnlessOk(status);
}

nb::tuple QkvRmsNormRopeCache(nb::dict a, nb::handle allocate, nb::handle strict,
                              nb::handle threads) {
  const auto in = [&a](const char* name, const char* allowed) {
    return Optional(a[name], name, allowed, Access::kRead);
  };
  const auto out = [&a](const char* name, const char* allowed) {
    return Optional(a[name], name, allowed, Access::kWrite);
  };
  const Optional qkv = in("qkv", k16Bit), q_gamma = in("q_gamma", k16Bit);
  const Optional k_gamma = in("k_gamma", k16Bit), cos = in("cos", k16Bit), sin = in("sin", k16Bit);
  const Optional index = in("index", "int64"), q_out = out("q_out", k16Bit);
  const Optional k_cache = out("k_cache", kCaches), v_cache = out("v_cache", kCaches);
  const Optional k_scale = in("k_scale", kFloat), v_scale = in("v_scale", kFloat);
  const Optional k_offset = in("k_offset", kFloat), v_offset = in("v_offset", kFloat);
  const std::vector<int64_t> qkv_size = PlainOf<std::vector<int64_t>>(a["qkv_size"], "qkv_size");
  const std::vector<int64_t> head_nums = PlainOf<std::vector<int64_t>>(a["head_nums"], "head_nums");
  const Word cache_mode = WordOf(a["cache_mode"], "cache_mode");

  QkvRmsNormRopeCacheArguments arguments;
  arguments.qkv = qkv.view();
  arguments.q_gamma = q_gamma.view();
  arguments.k_gamma = k_gamma.view();
  arguments.cos = cos.view();
  arguments.sin = sin.view();
  arguments.index = index.view();
  arguments.q_out = q_out.view();
  arguments.k_cache = k_cache.view();
  arguments.v_cache = v_cache.view();
  arguments.k_scale = k_scale.view();
  arguments.v_scale = v_scale.view();
  arguments.k_offset = k_offset.view();
  arguments.v_offset = v_offset.view();
  arguments.qkv_size = IntegersOf(qkv_size);
  arguments.head_nums = IntegersOf(head_nums);
  arguments.epsilon = PlainOf<double>(a["epsilon"], "epsilon");
  arguments.cache_mode = TextOf(cache_mode);

  auto call = ValueOf(Bind(arguments, kRules));
  if (!PlainOf<bool>(a["is_output_qkv"], "is_output_qkv")) {
    RunBound(call, strict, threads);
    return nb::make_tuple(nb::none(), nb::none(), nb::none());
  }
  // Once more with the before-quant outputs, whose shapes are known now.
  const int64_t tokens = call.tokens.total();
  const auto planned = [&](int64_t heads) {
    return Planned(call.spec.dtype, {tokens, heads * call.spec.head_dim});
  };
  const nb::object q = Allocated(allocate, planned(call.spec.heads.q));
  const nb::object k = Allocated(allocate, planned(call.spec.heads.k));
  const nb::object v = Allocated(allocate, planned(call.spec.heads.v));
  const Array q_array(q, "q_out_before_quant", Access::kWrite);
  const Array k_array(k, "k_out_before_quant", Access::kWrite);
  const Array v_array(v, "v_out_before_quant", Access::kWrite);
  arguments.q_out_before_quant = &q_array.view();
  arguments.k_out_before_quant = &k_array.view();
  arguments.v_out_before_quant = &v_array.view();
  call = ValueOf(Bind(arguments, kRules));
  RunBound(call, strict, threads);
  return nb::make_tuple(q, k, v);
}

nb::tuple DequantRopeQuantKvcache(nb::dict a, nb::handle allocate, nb::handle strict,
                                  nb::handle threads) {
  const auto in = [&a](const char* name, const char* allowed) {
    return Optional(a[name], name, allowed, Access::kRead);
  };
  const Optional x = in("x", "int32, float16 or bfloat16");
  const Optional cos = in("cos", k16Bit), sin = in("sin", k16Bit), indices = in("indices", "int32");
  const Optional k_cache(a["k_cache"], "k_cache", "int8", Access::kWrite);
  const Optional v_cache(a["v_cache"], "v_cache", "int8", Access::kWrite);
  const Optional scale_k = in("scale_k", kFloat), scale_v = in("scale_v", kFloat);
  const Optional offset_k = in("offset_k", kFloat), offset_v = in("offset_v", kFloat);
  const Optional weight_scale = in("weight_scale", kFloat);
  const Optional activation_scale = in("activation_scale", kFloat);
  const Optional bias = in("bias", "float32, float16, bfloat16 or int32");
  const std::vector<int64_t> size_splits =
      PlainOf<std::vector<int64_t>>(a["size_splits"], "size_splits");
  const Word quant_mode = WordOf(a["quant_mode"], "quant_mode");
  const Word layout = WordOf(a["input_layout"], "input_layout");
  const Word cache_mode = WordOf(a["cache_mode"], "cache_mode");

  DequantRopeQuantKvcacheArguments arguments;
  arguments.x = x.view();
  arguments.cos = cos.view();
  arguments.sin = sin.view();
  arguments.k_cache = k_cache.view();
  arguments.v_cache = v_cache.view();
  arguments.indices = indices.view();
  arguments.scale_k = scale_k.view();
  arguments.scale_v = scale_v.view();
  arguments.offset_k = offset_k.view();
  arguments.offset_v = offset_v.view();
  arguments.weight_scale = weight_scale.view();
  arguments.activation_scale = activation_scale.view();
  arguments.bias = bias.view();
  arguments.size_splits = IntegersOf(size_splits);
  arguments.quant_mode = TextOf(quant_mode);
  arguments.layout = TextOf(layout);
  arguments.cache_mode = TextOf(cache_mode);
  arguments.kv_output = PlainOf<bool>(a["kv_output"], "kv_output");

  // The outputs are new arrays, whose shapes follow from the arguments where these are right. Where
  // they are not, one of them is refused first.
  const auto planned = [&](size_t part) -> TensorView {
    const int64_t head_dim = k_cache.view() != nullptr && k_cache.view()->shape.rank == 4
                                 ? k_cache.view()->shape.dims[3]
                                 : 0;
    const bool is_known = x.view() != nullptr && cos.view() != nullptr && head_dim > 0 &&
                          size_splits.size() == 3 && x.view()->shape.rank >= 2;
    if (!is_known) return Planned(DType::kFloat16, {});
    const auto& dims = x.view()->shape.dims;
    const int64_t heads = size_splits[part] / head_dim;
    return x.view()->shape.rank == 3
               ? Planned(cos.view()->dtype, {dims[0], dims[1], heads, head_dim})
               : Planned(cos.view()->dtype, {dims[0], heads, head_dim});
  };
  const TensorView views[] = {planned(0), planned(1), planned(2)};
  arguments.q_out = &views[0];
  if (arguments.kv_output) {
    arguments.k_out = &views[1];
    arguments.v_out = &views[2];
  }
  auto call = ValueOf(Bind(arguments, kRules));
  const nb::object q = Allocated(allocate, views[0]);
  const Array q_array(q, "q", Access::kWrite);
  call.tensors.q_out = q_array.view().data;
  if (!arguments.kv_output) {
    RunBound(call, strict, threads);
    return nb::make_tuple(q, nb::none(), nb::none(), a["k_cache"], a["v_cache"]);
  }
  const nb::object k = Allocated(allocate, views[1]);
  const nb::object v = Allocated(allocate, views[2]);
  const Array k_array(k, "k", Access::kWrite);
  const Array v_array(v, "v", Access::kWrite);
  call.tensors.k_out = k_array.view().data;
  call.tensors.v_out = v_array.view().data;
  RunBound(call, strict, threads);
  return nb::make_tuple(q, k, v, a["k_cache"], a["v_cache"]);
}

}  // namespace

void AddUpstream(nb::module_& module) {
  for (const auto& [name, function] :
       {std::pair("qkv_rms_norm_rope_cache", &QkvRmsNormRopeCache),
        std::pair("dequant_rope_quant_kvcache", &DequantRopeQuantKvcache)}) {
    module.def(name, function, nb::arg("arguments"), nb::arg("allocate"), nb::arg("strict").none(),
               nb::arg("threads").none());
  }
}

}  // namespace qkvfuse::python
