// The elements of an array that Python holds.
#ifndef REDUCED_CLIENT_PYTHON_SRC_ELEMENTS_H_
#define REDUCED_CLIENT_PYTHON_SRC_ELEMENTS_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

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

}  // namespace reduced::python

#endif  // REDUCED_CLIENT_PYTHON_SRC_ELEMENTS_H_
