// Reading caches back and moving their pages.

#include <optional>

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
    const Array& array =
        arrays_.emplace_back(Required(view, name, field), full_name.c_str(), access);
    if (array.view().dtype != dtype) {
      RefuseType(full_name, ": type is ", Name(array.view().dtype), ", must be ", Name(dtype));
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
    const Array& array =
        arrays_.emplace_back(Required(view, name, field), full_name.c_str(), Access::kRead);
    if (array.view().dtype != DType::kFloat32) {
      RefuseType(full_name, ": type is ", Name(array.view().dtype), ", must be fp32");
    }
    *shape = array.shape();
    *data = array.view().data;
  }

  std::vector<Array> arrays_;
  CacheView view_;
};

/// An array of indices, int64 or int32, of `rank` axes.
Array IndicesOf(nb::handle object, const char* name, int rank) {
  Array array(object, name, Access::kRead);
  const DType dtype = array.view().dtype;
  if (dtype != DType::kInt64 && dtype != DType::kInt32) {
    RefuseType(name, ": type is ", Name(dtype), ", must be int64 or int32");
  }
  if (array.shape().rank != rank) {
    RefuseValue(name, ": shape is ", ShapeText(array.shape()), ", must have ", rank, " dimensions");
  }
  return array;
}

void CheckSameType(const Array& array, const char* name, DType dtype) {
  if (array.view().dtype == dtype) return;
  RefuseType(name, ": type is ", Name(array.view().dtype), ", must be ", Name(dtype),
             ", that of slots");
}

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
  const Array slot_array = IndicesOf(slots, "slots", is_table ? 2 : 1);
  const DType dtype = slot_array.view().dtype;
  arguments.slots = slot_array.view().data;
  arguments.slot_spec.dtype = dtype;
  std::optional<Array> length_array;
  std::optional<Array> offset_array;
  if (is_table) {
    arguments.sequences = slot_array.shape().dims[0];
    arguments.slot_spec.mode = SlotMode::kPageTable;
    arguments.slot_spec.pages = slot_array.shape().dims[1];
    arguments.slot_spec.sequence_stride = slot_array.shape().strides[0];
    arguments.slot_spec.stride = slot_array.shape().strides[1];
    const auto bind = [&](nb::handle object, const char* name, int64_t extra,
                          std::optional<Array>* array) -> const void* {
      array->emplace(IndicesOf(object, name, 1));
      CheckSameType(**array, name, dtype);
      CheckPacked(name, (*array)->shape());
      const int64_t count = (*array)->shape().dims[0];
      if (count != arguments.sequences && count != arguments.sequences + extra) {
        RefuseValue(name, ": shape is ", ShapeText((*array)->shape()), ", must be [",
                    arguments.sequences + extra, "]");
      }
      return (*array)->view().data;
    };
    arguments.lengths = bind(lengths, "lengths", 0, &length_array);
    if (!row_offsets.is_none()) {
      arguments.row_offsets = bind(row_offsets, "row_offsets", 1, &offset_array);
    }
  } else {
    arguments.slot_spec.stride = slot_array.shape().strides[0];
    if (slot_array.shape().dims[0] != arguments.rows) {
      RefuseValue("slots: shape is ", ShapeText(slot_array.shape()), ", must be [", arguments.rows,
                  "], the rows of out");
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

template <Status (*kMove)(const MovePagesArguments&, const RunOptions&) noexcept>
void Move(nb::handle from, nb::handle to, nb::handle pairs, nb::handle threads) {
  const View source(from, "source", Access::kRead);
  const View destination(to, "destination", Access::kWrite);
  const Array pair_array = IndicesOf(pairs, "pairs", 2);
  CheckPacked("pairs", pair_array.shape());
  if (pair_array.shape().dims[1] != 2) {
    RefuseValue("pairs: shape is ", ShapeText(pair_array.shape()), ", must be [count, 2]");
  }
  MovePagesArguments arguments;
  arguments.from = source.view();
  arguments.to = destination.view();
  arguments.count = pair_array.shape().dims[0];
  arguments.dtype = pair_array.view().dtype;
  arguments.pairs = pair_array.view().data;
  const RunOptions options = RunOptionsOf(threads);
  Status status;
  {
    const nb::gil_scoped_release release;
    status = kMove(arguments, options);
  }
  RaiseUnlessOk(status);
}

/// Shape of the array that a cache of these heads is; `field` is layout or scale_layout.
nb::tuple CacheShape(nb::handle cache, int64_t heads, int64_t head_dim, bool of_scales) {
  const CacheOfArrays made = CacheFrom(cache, heads, head_dim, "cache");
  if (of_scales && made.spec.scale_rule != ScaleRule::kDynamic) {
    RefuseValue("cache: scale_rule is ", "static, a scale cache needs dynamic");
  }
  const StridedShape shape = (of_scales ? made.scale_cache : made.cache).Shape();
  nb::list dims;
  for (int axis = 0; axis < shape.rank; ++axis) dims.append(shape.dims[static_cast<size_t>(axis)]);
  return nb::tuple(dims);
}

}  // namespace

void AddPages(nb::module_& module) {
  module.def("read_cache", &ReadRows, nb::arg("view"), nb::arg("slots"), nb::arg("lengths").none(),
             nb::arg("row_offsets").none(), nb::arg("out"), nb::arg("threads"));
  module.def("convert_pages", &Move<&ConvertPages>);
  module.def("copy_pages", &Move<&CopyPages>);
  module.def("cache_shape", &CacheShape);
}

}  // namespace qkvfuse::python
