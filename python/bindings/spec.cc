#include "spec.h"

#include <iterator>
#include <type_traits>

#include "fields.h"
#include "plain.h"

namespace qkvfuse::python {
namespace {

template <typename T>
concept HasFields = requires(T& value) {
  VisitFields(value, [](const char*, auto&) {});
};

/// Reads fields from the attributes of a Python object. `path` names the object in sentences.
class Reader {
 public:
  Reader(nb::handle object, std::string path) : object_(object), path_(std::move(path)) {}

  template <typename T>
  void operator()(const char* name, T& value) const {
    Read(object_.attr(name), path_.empty() ? std::string(name) : path_ + "." + name, value);
  }

 private:
  template <typename T>
  static void Read(nb::handle object, const std::string& name, T& value) {
    if constexpr (HasFields<T>) {
      VisitFields(value, Reader(object, name));
    } else if constexpr (std::is_same_v<T, DType>) {
      value = DTypeOf(PlainOf<std::string>(object, name), name.c_str());
    } else if constexpr (std::is_enum_v<T>) {
      value = Word<T>(PlainOf<std::string>(object, name), name);
    } else if constexpr (std::is_same_v<T, HeadCounts>) {
      std::array<int64_t, 3> counts{};
      Read(object, name, counts);
      value = {counts[0], counts[1], counts[2]};
    } else {
      value = PlainOf<T>(object, name);
    }
  }

  template <typename T>
  static void Read(nb::handle object, const std::string& name, std::optional<T>& value) {
    if (object.is_none()) {
      value.reset();
    } else {
      Read(object, name, value.emplace());
    }
  }

  template <typename E>
  static E Word(const std::string& text, const std::string& name) {
    for (size_t i = 0; i < std::size(kWords<E>); ++i) {
      if (text == kWords<E>[i]) return static_cast<E>(i);
    }
    RefuseValue(name, ": is '", text, "', which is none of its words");
  }

  nb::handle object_;
  std::string path_;
};

/// Writes fields into a dictionary, which the dataclass of the same fields is made from.
class Writer {
 public:
  explicit Writer(nb::dict* fields) : fields_(*fields) {}

  template <typename T>
  void operator()(const char* name, T& value) const {
    fields_[name] = Python(value);
  }

 private:
  template <typename T>
  static nb::object Python(T& value) {
    if constexpr (HasFields<T>) {
      nb::dict fields;
      VisitFields(value, Writer(&fields));
      return nb::object(fields);
    } else if constexpr (std::is_same_v<T, DType>) {
      return nb::str(NumpyName(value));
    } else if constexpr (std::is_enum_v<T>) {
      return nb::str(kWords<T>[static_cast<size_t>(value)]);
    } else if constexpr (std::is_same_v<T, HeadCounts>) {
      return nb::make_tuple(value.q, value.k, value.v);
    } else if constexpr (std::is_same_v<T, std::array<int64_t, 3>>) {
      return nb::make_tuple(value[0], value[1], value[2]);
    } else {
      return nb::cast(value);
    }
  }

  template <typename T>
  static nb::object Python(std::optional<T>& value) {
    return value ? Python(*value) : nb::none();
  }

  nb::dict& fields_;
};

template <typename T>
T Read(nb::handle object, const char* path) {
  T value;
  VisitFields(value, Reader(object, path));
  return value;
}

/// The class of the module `_spec` that has these fields.
template <typename T>
nb::object Write(T value, const char* class_name) {
  nb::dict fields;
  VisitFields(value, Writer(&fields));
  return nb::module_::import_("qkvfuse._spec").attr(class_name)(**fields);
}

std::vector<std::string> AxesOf(nb::handle layout, const char* argument) {
  const nb::object axes =
      nb::module_::import_("qkvfuse._layouts").attr("axes_of")(layout, argument);
  std::vector<std::string> names;
  for (const nb::handle axis : axes) names.push_back(nb::cast<std::string>(axis));
  return names;
}

}  // namespace

CacheOfArrays CacheFrom(nb::handle python_cache, int64_t heads, int64_t channels,
                        const char* argument) {
  CacheOfArrays made;
  VisitFields(made.spec, Reader(python_cache, argument));
  CacheArray sizes;
  const Reader read(python_cache, argument);
  read("blocks", sizes.blocks);
  read("block_size", sizes.block_size);
  read("chunk", sizes.chunk);
  sizes.heads = heads;
  sizes.channels = channels;
  for (const auto& [name, size] :
       {std::pair("blocks", sizes.blocks), std::pair("block_size", sizes.block_size)}) {
    if (size < 1) RefuseValue(argument, ".", name, ": is ", size, ", must be at least 1");
  }
  const auto array = [&](const char* field) {
    const nb::object layout = python_cache.attr(field);
    return CacheArray::Of(nb::cast<std::string>(nb::str(layout)), AxesOf(layout, field), sizes,
                          argument);
  };
  made.cache = array("layout");
  made.spec.layout = made.cache.LayoutOf(made.cache.Shape());
  if (made.spec.scale_rule == ScaleRule::kDynamic) {
    sizes.channels = 0;
    made.scale_cache = array("scale_layout");
    made.spec.scale_layout = made.scale_cache.LayoutOf(made.scale_cache.Shape());
  }
  return made;
}

SpecOfArrays SpecFrom(nb::handle python_spec) {
  SpecOfArrays made;
  FusedQkvSpec& spec = made.spec;
  VisitFields(spec, Reader(python_spec, ""));
  const auto cache = [&](const char* name, int64_t heads, int64_t channels, CacheArray* array,
                         CacheArray* scale_array) -> std::optional<CacheSpec> {
    const nb::object python_cache = python_spec.attr(name);
    if (python_cache.is_none()) return std::nullopt;
    CacheOfArrays cache_of_arrays = CacheFrom(python_cache, heads, channels, name);
    *array = std::move(cache_of_arrays.cache);
    *scale_array = std::move(cache_of_arrays.scale_cache);
    return cache_of_arrays.spec;
  };
  spec.k_cache = cache("k_cache", spec.heads.k, spec.head_dim, &made.k_cache, &made.k_scale_cache);
  spec.v_cache =
      cache("v_cache", spec.heads.v, spec.v_head_dim == 0 ? spec.head_dim : spec.v_head_dim,
            &made.v_cache, &made.v_scale_cache);
  return made;
}

nb::object PythonSpec(const FusedQkvSpec& spec) { return Write(spec, "Spec"); }

RopeSpec RopeFrom(nb::handle python_rope) { return Read<RopeSpec>(python_rope, "rope"); }

RopeTableSpec RopeTableFrom(nb::handle python_table) {
  return Read<RopeTableSpec>(python_table, "table");
}

nb::object PythonRopeTable(const RopeTableSpec& table) { return Write(table, "RopeTable"); }

}  // namespace qkvfuse::python
