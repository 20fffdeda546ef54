#include "client/python/src/arrow.h"

#include <cstring>
#include <memory>
#include <string>

namespace reduced::python {
namespace {

namespace nb = nanobind;

// Releases a structure of the interface, unless it was moved away.
struct Release {
  template <class T>
  void operator()(T* held) const {
    if (held->release != nullptr) held->release(held);
    delete held;
  }
};

template <class T>
using Held = std::unique_ptr<T, Release>;

template <class T>
Held<T> Empty() {
  return Held<T>(new T{});
}

// Moves the structure out of its capsule, which then has nothing to release.
template <class T>
Held<T> TakeOut(nb::handle capsule, const char* name) {
  auto* const given = static_cast<T*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (given == nullptr) throw nb::python_error();
  if (given->release == nullptr) throw nb::value_error("array: got a capsule of Arrow that was taken before");
  Held<T> taken = Empty<T>();
  *taken = *given;
  given->release = nullptr;
  return taken;
}

nb::tuple Describe(const ArrowSchema& schema) {
  nb::list children;
  for (std::int64_t i = 0; i < schema.n_children; ++i) children.append(Describe(*schema.children[i]));
  return nb::make_tuple(schema.format, schema.name == nullptr ? "" : schema.name, schema.dictionary != nullptr,
                        children);
}

void Append(Held<ArrowArray> array, nb::list& chunks) {
  const ArrowArray* const root = array.get();
  // The end of the memory may call into Python, whose calls take the GIL themselves.
  chunks.append(ArrowNode(std::shared_ptr<ArrowArray>(std::move(array)), root));
}

}  // namespace

nb::list ArrowNode::Children() const {
  nb::list children;
  for (std::int64_t i = 0; i < array_->n_children; ++i) children.append(ArrowNode(root_, array_->children[i]));
  return children;
}

std::uint64_t ArrowNode::Buffer(std::int64_t index) const {
  if (index < 0 || index >= array_->n_buffers) return 0;
  return reinterpret_cast<std::uint64_t>(array_->buffers[index]);
}

nb::tuple TakeArrowArray(nb::handle schema, nb::handle array) {
  const Held<ArrowSchema> type = TakeOut<ArrowSchema>(schema, "arrow_schema");
  nb::list chunks;
  Append(TakeOut<ArrowArray>(array, "arrow_array"), chunks);
  return nb::make_tuple(Describe(*type), chunks);
}

nb::tuple TakeArrowStream(nb::handle stream) {
  const Held<ArrowArrayStream> source = TakeOut<ArrowArrayStream>(stream, "arrow_array_stream");
  const auto check = [&source](int error) {
    if (error == 0) return;
    const char* const message = source->get_last_error(source.get());
    throw nb::value_error(("array: got an Arrow stream that ends with an error: " +
                           std::string(message == nullptr ? std::strerror(error) : message))
                              .c_str());
  };
  const Held<ArrowSchema> type = Empty<ArrowSchema>();
  check(source->get_schema(source.get(), type.get()));
  nb::list chunks;
  for (;;) {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    Held<ArrowArray> chunk = Empty<ArrowArray>();
    int error = 0;
    {
      const nb::gil_scoped_release release;  // the producer may compute the chunk, also on threads that need the GIL
      error = source->get_next(source.get(), chunk.get());
    }
    check(error);
    if (chunk->release == nullptr) break;
    Append(std::move(chunk), chunks);
  }
  return nb::make_tuple(Describe(*type), chunks);
}

}  // namespace reduced::python
