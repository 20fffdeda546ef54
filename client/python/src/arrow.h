// Arrays that other libraries hand over by Arrow's C data interface, without any of Arrow's libraries:
// https://arrow.apache.org/docs/format/CDataInterface.html
#ifndef REDUCED_CLIENT_PYTHON_SRC_ARROW_H_
#define REDUCED_CLIENT_PYTHON_SRC_ARROW_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace reduced::python {

// The structures of the interface, whose names, fields and order it prescribes.
extern "C" {
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  std::int64_t flags;
  std::int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;
  std::int64_t offset;
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

struct ArrowArrayStream {
  int (*get_schema)(ArrowArrayStream*, ArrowSchema* out);
  int (*get_next)(ArrowArrayStream*, ArrowArray* out);
  const char* (*get_last_error)(ArrowArrayStream*);
  void (*release)(ArrowArrayStream*);
  void* private_data;
};
}

// One array, or a child of one, which it keeps.
class ArrowNode {
 public:
  ArrowNode(std::shared_ptr<ArrowArray> root, const ArrowArray* array) : root_(std::move(root)), array_(array) {}

  const ArrowArray& array() const { return *array_; }
  nanobind::list Children() const;
  // The address of a buffer. 0: it has none.
  std::uint64_t Buffer(std::int64_t index) const;

 private:
  std::shared_ptr<ArrowArray> root_;
  const ArrowArray* array_;
};

// What the capsules of `__arrow_c_array__` and of `__arrow_c_stream__` hold: the schema, as a tuple of format, name,
// whether it has a dictionary, and the children's; and the chunks, as a list of ArrowNodes. They are taken out of the
// capsules. Throws what the producer reports as a ValueError.
nanobind::tuple TakeArrowArray(nanobind::handle schema, nanobind::handle array);
nanobind::tuple TakeArrowStream(nanobind::handle stream);

}  // namespace reduced::python

#endif  // REDUCED_CLIENT_PYTHON_SRC_ARROW_H_
