// From the arrays of one call to Tensors, and to the Spec with their strides.

#include <algorithm>
#include <cstddef>

#include "operands.h"
#include "plain.h"

namespace qkvfuse::python {
namespace {

using Form = Operand::Form;

Shape Dims(const StridedShape& shape) {
  return {shape.dims.begin(), shape.dims.begin() + shape.rank};
}

std::string Text(const Shape& dims) {
  StridedShape shape;
  for (const int64_t dim : dims) shape.dims[static_cast<size_t>(shape.rank++)] = dim;
  return ShapeText(shape);
}

Shape WithoutOnes(Shape dims) {
  dims.erase(std::remove(dims.begin(), dims.end(), 1), dims.end());
  return dims;
}

int64_t Product(const Shape& dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

Shape Joined(Shape shape, const Shape& rest) {
  shape.insert(shape.end(), rest.begin(), rest.end());
  return shape;
}

[[noreturn]] void RefuseShape(const Operand& operand, const StridedShape& found,
                              const Shape& allowed) {
  RefuseValue(operand.name, ": shape is ", ShapeText(found), ", must be ", Text(allowed));
}

/// The array of an operand's name, or None.
nb::handle Given(const nb::dict& arrays, const Operand& operand) {
  PyObject* const array = PyDict_GetItemWithError(arrays.ptr(), operand.key.ptr());
  return array == nullptr ? nb::handle(Py_None) : nb::handle(array);
}

/// The axes of a head group that follow the tokens: [heads, head_dim]; packed heads of two sizes
/// are one axis.
Shape HeadAxes(const Operand& operand) {
  if (operand.form != Form::kPackedHeads) return {operand.heads, operand.width};
  if (!operand.may_be_apart) return {operand.width};
  return {operand.heads, operand.width / operand.heads};
}

/// Token axes, one or two, that lie before the axes of the heads, or before all heads in one axis;
/// 0 where the shape is another one.
size_t TokenAxes(const StridedShape& shape, const Shape& heads, bool may_be_apart) {
  const Shape dims = Dims(shape);
  const auto ends_with = [&dims](const Shape& rest) -> size_t {
    if (dims.size() <= rest.size() || dims.size() > rest.size() + 2) return 0;
    const auto first = dims.end() - static_cast<std::ptrdiff_t>(rest.size());
    return std::equal(rest.begin(), rest.end(), first) ? dims.size() - rest.size() : 0;
  };
  const size_t axes = may_be_apart ? ends_with(heads) : 0;
  return axes != 0 ? axes : ends_with({Product(heads)});
}

}  // namespace

CallSizes Operands::SizesOf(nb::handle tokens, nb::dict arrays) const {
  CallSizes sizes;
  const Operand& source = operands_.front();
  if (tokens.is_none()) {
    const nb::handle object = Given(arrays, source);
    if (object.is_none()) RefuseType(source.name, ": is missing, must be given");
    const Array array(object, source.name, Access::kRead, NumpyName(source.dtype));
    const Shape heads = HeadAxes(source);
    const size_t axes = TokenAxes(array.shape(), heads, source.may_be_apart);
    if (axes == 0) {
      RefuseValue(source.name, ": shape is ", ShapeText(array.shape()), ", must be [tokens, ",
                  Product(heads), "] or [batch, sequence, ", Product(heads), "]",
                  source.may_be_apart ? ", or with the heads as " + Text(heads) : "");
    }
    const auto& dims = array.shape().dims;
    sizes.tokens = axes == 2 ? TokenCount(dims[0], dims[1]) : TokenCount(dims[0]);
  } else if (nb::isinstance<nb::tuple>(tokens) || nb::isinstance<nb::list>(tokens)) {
    if (nb::len(tokens) != 2) {
      RefuseValue("tokens: has ", nb::len(tokens), " values, must have 2, (batch, sequence)");
    }
    sizes.tokens =
        TokenCount(PlainOf<int64_t>(tokens[0], "tokens"), PlainOf<int64_t>(tokens[1], "tokens"));
  } else {
    sizes.tokens = TokenCount(PlainOf<int64_t>(tokens, "tokens"));
  }
  int64_t total = 0;
  if (sizes.tokens.batch < 0 || sizes.tokens.sequence < 0 ||
      __builtin_mul_overflow(sizes.tokens.batch, sizes.tokens.sequence, &total) ||
      total > kMostTokens) {
    RefuseValue("tokens: are ", sizes.tokens.batch, " x ", sizes.tokens.sequence,
                ", must be from 0 to 2^32 in all");
  }
  return sizes;
}

Shape Operands::ShapeOf(const Operand& operand, const CallSizes& sizes, bool has_batch) const {
  const FusedQkvSpec& s = spec_.spec;
  const Shape tokens =
      has_batch ? Shape{sizes.tokens.batch, sizes.tokens.sequence} : Shape{sizes.tokens.total()};
  switch (operand.form) {
    case Form::kHeads:
      return Joined(tokens, {operand.heads, operand.width});
    case Form::kPackedHeads:
    case Form::kRows:
      return Joined(tokens, {operand.width});
    case Form::kElements:
      return operand.dims.empty() ? tokens : operand.dims;
    case Form::kTable:
      return {operand.heads, operand.width};
    case Form::kPositions:
      return s.rope.sections == RopeSpec::Sections::kNone ? tokens : Joined({3}, tokens);
    case Form::kSlots:
      if (s.slots.mode == SlotMode::kPageTable) return {sizes.sequences, s.slots.pages};
      if (s.slots.mode == SlotMode::kStartPerSequence) return {sizes.tokens.batch};
      return tokens;
    case Form::kSequences:
      return {sizes.sequences + operand.extra};
    case Form::kDenseRows:
      return Joined(tokens, {operand.width});
    case Form::kCache:
      return Dims(operand.cache->Shape());
  }
  return {};
}

namespace {

/// Writes the strides of a checked array into the Spec.
class StrideWriter {
 public:
  StrideWriter(const Operand& operand, const StridedShape& shape, GeneralCall* call)
      : operand_(operand), shape_(shape), call_(*call) {}

  /// [tokens..., heads, width] or joined, for a number of axes after the tokens.
  void WriteHeads(size_t token_axes, int64_t head_width) const {
    const auto rank = static_cast<size_t>(shape_.rank);
    TokenStrides& strides = operand_.strides(call_.spec);
    strides.channel = shape_.strides[rank - 1];
    strides.head =
        rank - token_axes == 2 ? shape_.strides[token_axes] : head_width * strides.channel;
    WriteTokens(token_axes, &strides);
  }

  void WriteRows(size_t token_axes) const {
    TokenStrides& strides = operand_.strides(call_.spec);
    const int64_t last = shape_.strides[static_cast<size_t>(shape_.rank) - 1];
    if (operand_.is_output) {
      strides.head = last;  // q_scale_out: one element for each head
    } else {
      strides.channel = last;
    }
    WriteTokens(token_axes, &strides);
  }

  void WriteTable() const {
    TokenStrides& strides = operand_.strides(call_.spec);
    strides.token = shape_.strides[0];
    strides.channel = shape_.strides[1];
  }

  void WritePositions() const {
    RopeSpec& rope = call_.spec.rope;
    const bool has_sections = rope.sections != RopeSpec::Sections::kNone;
    rope.position_stride = LastStride();
    if (has_sections) rope.position_section_stride = shape_.strides[0];
  }

  void WriteSlots() const {
    SlotSpec& slots = call_.spec.slots;
    if (slots.mode == SlotMode::kPageTable) {
      slots.sequence_stride = shape_.strides[0];
      slots.stride = shape_.strides[1];
    } else {
      slots.stride = LastStride();
    }
  }

 private:
  /// From token to token of a list, whose batches follow each other.
  [[nodiscard]] int64_t LastStride() const {
    return shape_.strides[static_cast<size_t>(shape_.rank) - 1];
  }

  void WriteTokens(size_t token_axes, TokenStrides* strides) const {
    strides->token = shape_.strides[token_axes - 1];
    if (token_axes == 2) strides->batch = shape_.strides[0];
  }

  const Operand& operand_;
  const StridedShape& shape_;
  GeneralCall& call_;
};

/// Lists that the core takes with one stride: sequences of a batch have to follow each other.
bool MustBePacked(const Operand& operand, bool is_flat) {
  switch (operand.form) {
    case Form::kSequences:
    case Form::kDenseRows:
      return true;
    case Form::kPositions:
    case Form::kSlots:
      return !is_flat;
    default:
      return false;
  }
}

bool IsShapeOfElements(const Shape& found, const Shape& allowed) {
  const bool is_flat = found.size() == 1 && found[0] == Product(allowed);
  return is_flat || WithoutOnes(found) == WithoutOnes(allowed);
}

}  // namespace

void Operands::RefuseOthers(const nb::dict& arrays) const {
  if (nb::len(arrays) == operands_.size()) return;  // all of them are there
  for (const auto& [key, value] : arrays) {
    if (value.is_none()) continue;
    const auto name = nb::cast<std::string>(key);
    const bool is_known = std::any_of(operands_.begin(), operands_.end(),
                                      [&](const Operand& o) { return name == o.name; });
    if (!is_known) RefuseType(name, ": is given, but the Spec has no use for it");
  }
}

GeneralCall Operands::Bind(nb::handle tokens, nb::dict arrays) const {
  GeneralCall call{spec_.spec, SizesOf(tokens, arrays), {}, {}, {}};
  call.arrays.reserve(operands_.size());
  const bool has_batch = call.sizes.tokens.batch != 1;
  if (spec_.spec.k_cache && spec_.spec.slots.mode == SlotMode::kPageTable) {
    call.sizes.sequences = 1;  // of a plan that measures, which takes no lengths
    const nb::object lengths = arrays.attr("get")("lengths");
    if (!lengths.is_none()) {
      const Array array(lengths, "lengths", Access::kRead);
      if (array.shape().rank != 1 || array.shape().dims[0] == 0) {
        RefuseValue("lengths: shape is ", ShapeText(array.shape()),
                    ", must be [sequences], of at least one sequence");
      }
      call.sizes.sequences = array.shape().dims[0];
    }
  }
  for (const Operand& operand : operands_) {
    const nb::handle object = Given(arrays, operand);
    if (object.is_none()) RefuseType(operand.name, ": is missing, must be given");
    const Array& array = call.arrays.emplace_back(
        object, operand.name, operand.is_output ? Access::kWrite : Access::kRead,
        NumpyName(operand.dtype));
    if (array.view().dtype != operand.dtype) {
      RefuseType(operand.name, ": type is ", NumpyName(array.view().dtype), ", must be ",
                 NumpyName(operand.dtype));
    }
    const Shape dims = Dims(array.shape());
    const Shape batched = ShapeOf(operand, call.sizes, true);
    const Shape flat = ShapeOf(operand, call.sizes, false);
    const Shape& canonical = has_batch ? batched : flat;
    TensorView view = array.view();
    const StridedShape& shape = view.shape;
    if (MustBePacked(operand, dims == flat) && !IsPacked(shape)) {
      if (operand.is_output) {
        RefuseValue(operand.name, ": has gaps between its elements, must be contiguous");
      }
      view.data = call.copies.emplace_back(PackedCopy(view)).data();
      view.shape.MakeContiguous();
    }
    const StrideWriter write(operand, shape, &call);
    switch (operand.form) {
      case Form::kHeads:
      case Form::kPackedHeads: {
        const size_t axes = TokenAxes(shape, HeadAxes(operand), operand.may_be_apart);
        const bool matches = axes == 1 ? dims[0] == call.sizes.tokens.total()
                                       : axes == 2 && dims[0] == call.sizes.tokens.batch &&
                                             dims[1] == call.sizes.tokens.sequence;
        if (!matches) RefuseShape(operand, shape, canonical);
        write.WriteHeads(axes, operand.form == Form::kHeads ? operand.width : spec_.spec.head_dim);
        break;
      }
      case Form::kRows: {
        // [tokens, 1, width] too, as torch_npu has cos and sin.
        const auto with_head = [](Shape rows) {
          rows.insert(rows.end() - 1, 1);
          return rows;
        };
        if (dims == flat || dims == batched) {
          write.WriteRows(dims.size() - 1);
        } else if (!operand.is_output && (dims == with_head(flat) || dims == with_head(batched))) {
          write.WriteRows(dims.size() - 2);
        } else {
          RefuseShape(operand, shape, canonical);
        }
        break;
      }
      case Form::kElements:
        if (!IsShapeOfElements(dims, canonical)) RefuseShape(operand, shape, canonical);
        operand.shape(call.spec) = shape;
        break;
      case Form::kTable:
        if (dims != flat) RefuseShape(operand, shape, flat);
        write.WriteTable();
        break;
      case Form::kPositions:
        if (dims != flat && dims != batched) RefuseShape(operand, shape, canonical);
        write.WritePositions();
        break;
      case Form::kSlots:
        if (dims != flat && dims != batched) RefuseShape(operand, shape, canonical);
        write.WriteSlots();
        break;
      case Form::kSequences:
      case Form::kDenseRows:
        if (dims != flat && dims != batched) RefuseShape(operand, shape, canonical);
        break;
      case Form::kCache:
        if (dims != flat) RefuseShape(operand, shape, flat);
        operand.layout(call.spec) = operand.cache->LayoutOf(shape);
        break;
    }
    if (operand.is_output) {
      call.tensors.*operand.output = view.data;
    } else {
      call.tensors.*operand.input = view.data;
    }
  }
  RefuseOthers(arrays);
  if (call.sizes.sequences != 0) {
    call.sizes.tokens.ragged_sequences = call.sizes.sequences;
  }
  return call;
}

nb::dict Operands::Describe(nb::handle tokens, int64_t sequences) const {
  CallSizes sizes = SizesOf(tokens, nb::dict());
  sizes.sequences = sequences;
  const bool has_batch = sizes.tokens.batch != 1;
  nb::dict described;
  for (const Operand& operand : operands_) {
    nb::list shape;
    for (const int64_t size : ShapeOf(operand, sizes, has_batch)) shape.append(size);
    described[operand.name] =
        nb::make_tuple(nb::tuple(shape), NumpyName(operand.dtype), operand.is_output);
  }
  return described;
}

}  // namespace qkvfuse::python
