#include "client/python/src/keys.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "client/python/src/call.h"
#include "reduced/group_keys.h"

namespace nb = nanobind;
namespace reduced::python {
namespace {

using client::KeyColumn;

[[noreturn]] void RaiseType(const std::string& name, const std::string& got, const char* allowed) {
  throw nb::type_error((name + ": got " + got + "; allowed: " + allowed).c_str());
}

std::string TypeName(nb::handle object) { return nb::cast<std::string>(object.type().attr("__name__")); }

// The memory of an array in C order, which it keeps. Needs the GIL to be made and destroyed.
class Buffer {
 public:
  Buffer(nb::handle array, const std::string& name, int dimensions, const char* allowed) {
    if (PyObject_GetBuffer(array.ptr(), &buffer_, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) != 0) {
      PyErr_Clear();
      RaiseType(name, TypeName(array), allowed);
    }
    if (buffer_.ndim != dimensions) {
      const std::string got = std::to_string(buffer_.ndim) + " dimensions";
      PyBuffer_Release(&buffer_);
      RaiseType(name, got, allowed);
    }
  }
  ~Buffer() { PyBuffer_Release(&buffer_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  const void* data() const { return buffer_.buf; }
  std::int64_t size(int dimension) const { return buffer_.shape[dimension]; }
  // As the library names it: "i32". Empty: it has none for this type, or the bytes are swapped.
  std::string dtype() const {
    std::string_view format = buffer_.format == nullptr ? "B" : buffer_.format;
    if (format.size() == 2 && (format[0] == '=' || format[0] == '<' || format[0] == '@')) format.remove_prefix(1);
    if (format.size() != 1) return {};
    if (format == "?") return "bool";
    constexpr std::pair<std::string_view, char> kKinds[] = {{"bhilq", 'i'}, {"BHILQ", 'u'}, {"fd", 'f'}};
    for (const auto& [formats, kind] : kKinds) {
      if (formats.find(format[0]) != formats.npos) return kind + std::to_string(8 * buffer_.itemsize);
    }
    return {};
  }
  bool OfObjects() const { return buffer_.format != nullptr && std::string_view(buffer_.format) == "O"; }

 private:
  Py_buffer buffer_{};
};

// The text of objects, with offsets, and which of them are text at all.
struct CopiedText {
  std::vector<std::int64_t> offsets{0};
  std::string data;
  std::vector<std::uint8_t> valid;
};

// pandas.NA, if anyone has imported pandas; else null.
nb::object PandasNa() {
  const nb::dict modules = nb::module_::import_("sys").attr("modules");
  return modules.contains("pandas") ? nb::getattr(modules["pandas"], "NA", nb::object()) : nb::object();
}

CopiedText CopyText(nb::handle objects, const std::string& name) {
  constexpr const char* kAllowed = "a list or an array of objects: str, None, NaN or pandas.NA";
  // A list of one's own also of other sequences: only an array of objects has them in memory in a row.
  std::unique_ptr<Buffer> array;
  nb::object list;
  if (nb::isinstance<nb::list>(objects)) {
    list = nb::borrow(objects);
  } else {
    array = std::make_unique<Buffer>(objects, name, 1, kAllowed);
    if (!array->OfObjects()) RaiseType(name, "an array of another dtype", kAllowed);
  }
  const std::int64_t count = array != nullptr ? array->size(0) : PyList_Size(list.ptr());
  const nb::object na = PandasNa();
  CopiedText text;
  text.offsets.reserve(static_cast<std::size_t>(count) + 1);
  text.valid.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    PyObject* const object =
        array != nullptr ? static_cast<PyObject* const*>(array->data())[i] : PyList_GetItem(list.ptr(), i);
    if (object == nullptr) throw nb::python_error();  // the list has become shorter
    const bool valid = PyUnicode_Check(object);
    if (valid) {
      Py_ssize_t bytes = 0;
      if (const char* const utf8 = PyUnicode_AsUTF8AndSize(object, &bytes); utf8 != nullptr) {
        text.data.append(utf8, static_cast<std::size_t>(bytes));
      } else {  // half of a surrogate pair
        PyErr_Clear();
        const nb::bytes encoded(nb::handle(object).attr("encode")("utf-8", "surrogatepass"));
        text.data.append(encoded.c_str(), encoded.size());
      }
    } else if (object != Py_None && object != na.ptr() &&
               !(PyFloat_Check(object) && std::isnan(PyFloat_AsDouble(object)))) {
      RaiseType(name, TypeName(object), "str, None, NaN, pandas.NA");
    }
    text.valid.push_back(static_cast<std::uint8_t>(valid));
    text.offsets.push_back(static_cast<std::int64_t>(text.data.size()));
  }
  return text;
}

// Columns, and what has their memory.
class Columns {
 public:
  void Add(nb::handle column, const std::string& name) {
    constexpr const char* kAllowed = "a tuple of numbers, bytes, ucs4, utf8 or objects, as _core.pyi says";
    if (!nb::isinstance<nb::tuple>(column) || nb::len(column) < 3) RaiseType(name, TypeName(column), kAllowed);
    const nb::tuple parts = nb::borrow<nb::tuple>(column);
    const std::string kind = nb::isinstance<nb::str>(parts[0]) ? nb::cast<std::string>(parts[0]) : TypeName(parts[0]);
    if (nb::len(parts) != (kind == "utf8" ? 4 : 3))
      RaiseType(name, std::to_string(nb::len(parts)) + " parts", kAllowed);
    if (kind == "numbers") {
      const Buffer& numbers = Hold(parts[1], name, 1, "an array of numbers of one dimension in C order");
      if (numbers.dtype().empty())
        RaiseType(name, "an array of another dtype", "bool, integers, f4, f8, in native byte order");
      columns_.push_back(
          KeyColumn::Numbers({.data = numbers.data(), .dtype = numbers.dtype(), .shape = {numbers.size(0)}}));
    } else if (kind == "bytes" || kind == "ucs4") {
      const bool ucs4 = kind == "ucs4";
      const Buffer& text = Hold(parts[1], name, 2, "an array of two dimensions in C order");
      Require(text, name, ucs4 ? "u32" : "u8");
      columns_.push_back(ucs4 ? KeyColumn::Ucs4(text.data(), text.size(0), text.size(1))
                              : KeyColumn::Bytes(text.data(), text.size(0), text.size(1)));
    } else if (kind == "utf8") {
      const Buffer& offsets = Hold(parts[1], name, 1, "an array of offsets");
      const Buffer& data = Hold(parts[2], name, 1, "an array of bytes");
      Require(data, name, "u8");
      const std::string_view bytes(static_cast<const char*>(data.data()), static_cast<std::size_t>(data.size(0)));
      const auto count = static_cast<std::size_t>(offsets.size(0));
      if (offsets.dtype() == "i32") {
        columns_.push_back(KeyColumn::Utf8(std::span(static_cast<const std::int32_t*>(offsets.data()), count), bytes));
      } else {
        Require(offsets, name, "i64");
        columns_.push_back(KeyColumn::Utf8(std::span(static_cast<const std::int64_t*>(offsets.data()), count), bytes));
      }
    } else if (kind == "objects") {
      const CopiedText& text = *copied_.emplace_back(std::make_unique<CopiedText>(CopyText(parts[1], name)));
      columns_.push_back(KeyColumn::Utf8(text.offsets, text.data, {.data = text.valid.data()}));
    } else {
      RaiseType(name, kind, kAllowed);
    }
    if (const nb::handle validity = parts[nb::len(parts) - 1]; !validity.is_none()) AddValidity(validity, name, kind);
  }
  std::span<const KeyColumn> get() const { return columns_; }

 private:
  const Buffer& Hold(nb::handle array, const std::string& name, int dimensions, const char* allowed) {
    return *held_.emplace_back(std::make_unique<Buffer>(array, name, dimensions, allowed));
  }
  static void Require(const Buffer& array, const std::string& name, const char* dtype) {
    if (array.dtype() == dtype) return;
    RaiseType(name, array.dtype().empty() ? "an array of another dtype" : "an array of " + array.dtype(), dtype);
  }
  void AddValidity(nb::handle validity, const std::string& name, const std::string& kind) {
    if (kind == "objects") RaiseType(name, "a validity of objects", "None");
    const Buffer& valid = Hold(validity, name, 1, "a validity that is an array of bool, or None");
    Require(valid, name, "bool");
    // Of text, the number of rows is that of the offsets.
    KeyColumn& column = columns_.back();
    const auto* const numbers = std::get_if<client::ArrayView>(&column.keys);
    const auto* const fixed = std::get_if<client::FixedWidthText>(&column.keys);
    const std::int64_t rows = numbers != nullptr ? numbers->shape[0] : fixed != nullptr ? fixed->rows : offset_rows();
    if (valid.size(0) != rows) {
      RaiseType(name, "a validity of " + std::to_string(valid.size(0)) + " rows",
                ("the " + std::to_string(rows) + " of the keys").c_str());
    }
    column.validity.data = static_cast<const std::uint8_t*>(valid.data());
  }
  std::int64_t offset_rows() const {
    const auto& text = std::get<client::VariableWidthText>(columns_.back().keys);
    return std::visit([](const auto& offsets) { return std::ssize(offsets) - 1; }, text.offsets);
  }

  std::vector<KeyColumn> columns_;
  std::vector<std::unique_ptr<Buffer>> held_;
  std::vector<std::unique_ptr<CopiedText>> copied_;
};

// An array that owns its elements.
template <class T, class Owner>
nb::object ArrayOf(Owner owner, const T* elements, std::int64_t count) {
  auto* const held = new Owner(std::move(owner));
  const nb::capsule keeper(held, [](void* pointer) noexcept { delete static_cast<Owner*>(pointer); });
  const std::size_t shape[] = {static_cast<std::size_t>(count)};
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(const_cast<T*>(elements), 1, shape, keeper));
}

}  // namespace

nb::tuple EncodeKeys(const nb::list& columns, bool sort, const std::string& missing) {
  Columns held;
  for (const nb::handle column : columns) held.Add(column, "keys[" + std::to_string(held.get().size()) + "]");
  client::KeyCodes codes = Run(nullptr, [&](const client::Interrupted&) {
    return client::EncodeKeys(held.get(), {.sort = sort, .missing = missing});
  });
  const std::int64_t rows = codes.rows(), groups = codes.groups();
  const std::int64_t* const first = codes.first.data();
  nb::object firsts = ArrayOf(std::move(codes.first), first, groups);
  nb::object numbers = std::visit(
      [&](auto released) {
        const auto* const elements = released.get();
        return ArrayOf(std::move(released), elements, rows);
      },
      std::move(codes).Release());
  return nb::make_tuple(std::move(numbers), groups, std::move(firsts));
}

}  // namespace reduced::python
