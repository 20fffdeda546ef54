// The elements of arrays that Python holds.
#ifndef REDUCED_CLIENT_PYTHON_SRC_ELEMENTS_H_
#define REDUCED_CLIENT_PYTHON_SRC_ELEMENTS_H_

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/system/gather.h"
#include "kernels/system/status_macros.h"
#include "reduced/array.h"

namespace reduced::python {

// The memory of an object with the buffer protocol, in C order, as elements of a dtype. Keeps the object. Needs the GIL
// to be made and destroyed.
class Elements {
 public:
  // BufferError: the object has no buffer in C order.
  Elements(nanobind::handle object, std::string dtype, std::vector<std::int64_t> shape) {
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_SIMPLE) != 0) throw nanobind::python_error();
    view_ = {.data = buffer_.buf, .dtype = std::move(dtype), .shape = std::move(shape)};
  }
  ~Elements() { PyBuffer_Release(&buffer_); }
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;

  const client::ArrayView& view() const { return view_; }
  // INVALID_ARGUMENT: the shape does not fit the memory, or is none.
  absl::Status Check() const {
    ASSIGN_OR_RETURN(const std::int64_t bytes, client::ArrayBytes(view_.dtype, view_.shape));
    if (bytes == buffer_.len) return absl::OkStatus();
    return absl::InvalidArgumentError("shape: got " + std::to_string(bytes) + " bytes; allowed: the " +
                                      std::to_string(buffer_.len) + " of the buffer");
  }

 private:
  Py_buffer buffer_{};
  client::ArrayView view_;
};

// An array in host memory, as the library takes it. With strides `view` has a reader.
struct HostArray : client::ArrayView {
  HostArray(client::ArrayView view) : client::ArrayView(std::move(view)) {}  // NOLINT(google-explicit-constructor)
  HostArray(client::ArrayView view, std::shared_ptr<const StridedReader> reader, ByteSpan span,
            client::ElementLayout lies)
      : client::ArrayView(std::move(view)), strided(std::move(reader)), bytes(span), layout(std::move(lies)) {}

  std::shared_ptr<const StridedReader> strided{};  // null: the elements lie at `data`, in C order
  ByteSpan bytes{};                                // that they take then
  client::ElementLayout layout{};
};

// The elements of an array of NumPy that do not lie next to each other, or in the other byte order. Keeps the array.
// Needs the GIL to be made and destroyed.
class Strided {
 public:
  // `address`: of the element whose indexes are all 0. ValueError: the strides are not those of such an array.
  Strided(nanobind::object array, std::uint64_t address, StridedArray elements)
      : array_(std::move(array)),
        bytes_(SpanOf(elements.shape, elements.strides, elements.width).value_or(ByteSpan{})) {
    if (bytes_.begin == bytes_.end) throw nanobind::value_error("strides: got those of no array with elements");
    elements.data = reinterpret_cast<const std::byte*>(address);
    shape_ = elements.shape;
    layout_ = {.strides = elements.strides, .big_endian = elements.swaps};
    reader_ = std::make_shared<const StridedReader>(elements);
  }

  std::int64_t nbytes() const {
    std::int64_t bytes = reader_->width();
    for (const std::int64_t size : shape_) bytes *= size;
    return bytes;
  }
  HostArray Of(const std::string& dtype) const {
    client::ArrayView view{.dtype = dtype, .shape = shape_};
    view.reader.in_memory = true;
    view.reader.read = [reader = reader_](std::int64_t offset, char* to, std::int64_t bytes) {
      reader->Read(offset / reader->width(), bytes / reader->width(), reinterpret_cast<std::byte*>(to));
      return absl::OkStatus();
    };
    return {std::move(view), reader_, bytes_, layout_};
  }

 private:
  const nanobind::object array_;
  const ByteSpan bytes_;
  std::vector<std::int64_t> shape_;
  client::ElementLayout layout_;
  std::shared_ptr<const StridedReader> reader_;
};

}  // namespace reduced::python

#endif  // REDUCED_CLIENT_PYTHON_SRC_ELEMENTS_H_
