// Reading caches back and moving their pages.

#include <optional>
#include <utility>

#include "doors.h"
#include "options.h"
#include "spec.h"

namespace qkvfuse::python {
namespace {

/// Python's CacheView and the memory of its arrays.
class View {
 public:
  View(nb::handle view, const std::string& name, Access access) {
    const auto heads = PlainOf<int64_t>(view.attr("heads"), name + ".heads");
    const auto head_dim = PlainOf<int64_t>(view.attr("head_dim"), name + ".head_dim");
    CacheOfArrays cache = CacheFrom(view.attr("cache"), heads, head_dim, name.c_str());
    view_.spec = cache.spec;
    view_.heads = heads;
    view_.head_dim = head_dim;
    const bool is_quantised = IsQuantised(cache.spec.dtype);
    const bool is_dynamic = cache.spec.scale_rule == ScaleRule::kDynamic;
    view_.spec.layout =
        Bind(view, name, "data", cache.cache, cache.spec.dtype, access, &view_.data);
    if (is_dynamic) {
      view_.spec.scale_layout = Bind(view, name, "scale_cache", cache.scale_cache, DType::kFloat32,
                                     access, &view_.scale_cache);
    } else {
      RefuseGiven(view, name, "scale_cache", "dynamic scales");
    }
    if (is_quantised && !is_dynamic) {
      BindElements(view, name, "scale", &view_.spec.scale_shape, &view_.scale);
    } else {
      RefuseGiven(view, name, "scale", "an 8-bit type with static scales");
    }
    if (cache.spec.has_offset) {
      BindElements(view, name, "offset", &view_.spec.offset_shape, &view_.offset);
    } else {
      RefuseGiven(view, name, "offset", "has_offset");
    }
  }

  [[nodiscard]] const CacheView& view() const noexcept { return view_; }

 private:
  static nb::object Required(nb::handle view, const std::string& name, const char* field) {
    nb::object object = view.attr(field);
    if (object.is_none()) RefuseType(name, ".", field, ": is missing, must be given");
    return object;
  }

  static void RefuseGiven(nb::handle view, const std::string& name, const char* field,
                          const char* needed) {
    if (view.attr(field).is_none()) return;
    RefuseType(name, ".", field, ": is given, needs ", needed);
  }

  CacheLayout Bind(nb::handle view, const std::string& name, const char* field,
                   const CacheArray& cache, DType dtype, Access access, void** data) {
    const std::string full_name = name + "." + field;
    const Array& array = arrays_.emplace_back(Required(view, name, field), full_name.c_str(),
                                              access, NumpyName(dtype));
    if (array.view().dtype != dtype) {
      RefuseType(full_name, ": type is ", NumpyName(array.view().dtype), ", must be ",
                 NumpyName(dtype));
    }
    StridedShape expected = cache.Shape();
    expected.strides = array.shape().strides;
    if (!(expected == array.shape())) {
      RefuseValue(full_name, ": shape is ", ShapeText(array.shape()), ", must be ",
                  ShapeText(expected));
    }
    *data = array.view().data;
    return cache.LayoutOf(array.shape());
  }

  void BindElements(nb::handle view, const std::string& name, const char* field,
                    StridedShape* shape, const void** data) {
    const std::string full_name = name + "." + field;
    const Array& array = arrays_.emplace_back(Required(view, name, field), full_name.c_str(),
                                              Access::kRead, "float32");
    if (array.view().dtype != DType::kFloat32) {
      RefuseType(full_name, ": type is ", NumpyName(array.view().dtype), ", must be float32");
    }
    *shape = array.shape();
    *data = array.view().data;
  }

  std::vector<Array> arrays_;
  CacheView view_;
};

/// An array of indices, int64 or int32, of `rank` axes; packed where that is asked for.
class Indices {
 public:
  Indices(nb::handle object, const char* name, int rank, bool must_be_packed)
      : array_(object, name, Access::kRead, "int64 or int32"), view_(array_.view()) {
    if (view_.dtype != DType::kInt64 && view_.dtype != DType::kInt32) {
      RefuseType(name, ": type is ", NumpyName(view_.dtype), ", must be int64 or int32");
    }
    if (view_.shape.rank != rank) {
      RefuseValue(name, ": shape is ", ShapeText(view_.shape), ", must have ", rank,
                  rank == 1 ? " dimension" : " dimensions");
    }
    if (!must_be_packed || IsPacked(view_.shape)) return;
    copy_ = PackedCopy(view_);
    view_.data = copy_.data();
    view_.shape.MakeContiguous();
  }

  [[nodiscard]] const TensorView& view() const noexcept { return view_; }
  [[nodiscard]] int64_t dim(size_t axis) const noexcept { return view_.shape.dims[axis]; }
  [[nodiscard]] int64_t stride(size_t axis) const noexcept { return view_.shape.strides[axis]; }

 private:
  Array array_;
  TensorView view_;
  std::vector<std::byte> copy_;
};

void ReadRows(nb::handle view, nb::handle slots, nb::handle lengths, nb::handle row_offsets,
              nb::handle out, nb::handle threads) {
  const View cache(view, "cache", Access::kRead);
  ReadCacheArguments arguments;
  arguments.cache = cache.view();
  const Array out_array(out, "out", Access::kWrite);
  const StridedShape& shape = out_array.shape();
  if (shape.rank != 3 || shape.dims[1] != cache.view().heads ||
      shape.dims[2] != cache.view().head_dim) {
    RefuseValue("out: shape is ", ShapeText(shape), ", must be [rows, ", cache.view().heads, ", ",
                cache.view().head_dim, "]");
  }
  arguments.rows = shape.dims[0];
  arguments.dtype = out_array.view().dtype;
  arguments.out = out_array.view().data;
  TokenStrides& strides = arguments.out_strides.emplace();
  strides.token = shape.strides[0];
  strides.head = shape.strides[1];
  strides.channel = shape.strides[2];

  const bool is_table = !lengths.is_none();
  if (!is_table && !row_offsets.is_none()) {
    RefuseType("row_offsets: is given, needs lengths, of a page table");
  }
  const Indices slot_list(slots, "slots", is_table ? 2 : 1, false);
  const DType dtype = slot_list.view().dtype;
  arguments.slots = slot_list.view().data;
  arguments.slot_spec.dtype = dtype;
  std::optional<Indices> length_list;
  std::optional<Indices> offset_list;
  if (is_table) {
    arguments.sequences = slot_list.dim(0);
    arguments.slot_spec.mode = SlotMode::kPageTable;
    arguments.slot_spec.pages = slot_list.dim(1);
    arguments.slot_spec.sequence_stride = slot_list.stride(0);
    arguments.slot_spec.stride = slot_list.stride(1);
    const auto bind = [&](nb::handle object, const char* name, int64_t extra,
                          std::optional<Indices>* list) -> const void* {
      const Indices& made = list->emplace(object, name, 1, true);
      if (made.view().dtype != dtype) {
        RefuseType(name, ": type is ", NumpyName(made.view().dtype), ", must be ", NumpyName(dtype),
                   ", that of slots");
      }
      if (made.dim(0) != arguments.sequences && made.dim(0) != arguments.sequences + extra) {
        RefuseValue(name, ": shape is ", ShapeText(made.view().shape), ", must be [",
                    arguments.sequences + extra, "]");
      }
      return made.view().data;
    };
    arguments.lengths = bind(lengths, "lengths", 0, &length_list);
    if (!row_offsets.is_none()) {
      arguments.row_offsets = bind(row_offsets, "row_offsets", 1, &offset_list);
    }
  } else {
    arguments.slot_spec.stride = slot_list.stride(0);
    if (slot_list.dim(0) != arguments.rows) {
      RefuseValue("slots: shape is ", ShapeText(slot_list.view().shape), ", must be [",
                  arguments.rows, "], the rows of out");
    }
  }
  const RunOptions options = RunOptionsOf(threads);
  Status status;
  {
    const nb::gil_scoped_release release;
    status = ReadCache(arguments, options);
  }
  RaiseUnlessOk(status);
}

/// The members `from` and `to`, where a sentence begins with them, by the names of the parameters.
Status WithPythonArguments(const Status& status) {
  const std::string& sentence = status.message();
  for (const auto& [member, parameter] :
       {std::pair<std::string, std::string>("from", "source"), {"to", "destination"}}) {
    const bool begins = sentence.compare(0, member.size(), member) == 0;
    const char after = begins && sentence.size() > member.size() ? sentence[member.size()] : ' ';
    if (after != '.' && after != ':') continue;
    return Status(status.code(), parameter + sentence.substr(member.size()));
  }
  return status;
}

template <Status (*kMove)(const MovePagesArguments&, const RunOptions&) noexcept>
void Move(nb::handle from, nb::handle to, nb::handle pairs, nb::handle threads) {
  const View source(from, "source", Access::kRead);
  const View destination(to, "destination", Access::kWrite);
  const Indices pair_list(pairs, "pairs", 2, true);
  if (pair_list.dim(1) != 2) {
    RefuseValue("pairs: shape is ", ShapeText(pair_list.view().shape), ", must be [count, 2]");
  }
  MovePagesArguments arguments;
  arguments.from = source.view();
  arguments.to = destination.view();
  arguments.count = pair_list.dim(0);
  arguments.dtype = pair_list.view().dtype;
  arguments.pairs = pair_list.view().data;
  const RunOptions options = RunOptionsOf(threads);
  Status status;
  {
    const nb::gil_scoped_release release;
    status = kMove(arguments, options);
  }
  RaiseUnlessOk(WithPythonArguments(status));
}

}  // namespace

void AddPages(nb::module_& module) {
  module.def("read_cache", &ReadRows, nb::arg("view"), nb::arg("slots").none(),
             nb::arg("lengths").none(), nb::arg("row_offsets").none(), nb::arg("out").none(),
             nb::arg("threads").none());
  for (const auto& [name, function] : {std::pair("convert_pages", &Move<&ConvertPages>),
                                       std::pair("copy_pages", &Move<&CopyPages>)}) {
    module.def(name, function, nb::arg("source"), nb::arg("destination"), nb::arg("pairs").none(),
               nb::arg("threads").none());
  }
}

}  // namespace qkvfuse::python
