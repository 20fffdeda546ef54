// What Python holds of arrays that are elsewhere: on a server, or in memory of a GPU.
#ifndef REDUCED_CLIENT_PYTHON_SRC_HELD_H_
#define REDUCED_CLIENT_PYTHON_SRC_HELD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/python/src/call.h"
#include "client/python/src/cuda.h"
#include "client/python/src/fork.h"
#include "reduced/client.h"

namespace reduced::python {

// A resident array of a server, which is deleted with this.
class Resident {
 public:
  explicit Resident(client::ResidentArray array) : info_(array.info()), array_(MakeOwned(std::move(array))) {}
  ~Resident() { Close(); }
  Resident(const Resident&) = delete;
  Resident& operator=(const Resident&) = delete;

  const client::ArrayInfo& info() const { return info_; }
  void Close() {
    Owned<client::ResidentArray> array = std::move(array_);
    const Released released;  // it waits for the server
    array.reset();
  }

 private:
  const client::ArrayInfo info_;
  Owned<client::ResidentArray> array_;
};

// Memory of a GPU. What Python holds of it keeps its region at the servers that have reduced it.
class SharedCuda {
 public:
  SharedCuda(std::uint64_t address, std::string dtype, std::vector<std::int64_t> shape, std::uint64_t stream,
             std::pair<std::uint64_t, std::uint64_t> owner, std::optional<std::vector<std::int64_t>> strides)
      : array_(Run(nullptr, [&](const client::Interrupted&) {
          return CudaArray::Find(address, std::move(dtype), std::move(shape), stream, owner,
                                 {.strides = std::move(strides)});
        })) {}
  ~SharedCuda() {
    const Released released;  // the last one of an allocation waits for the servers
    array_.reset();
  }
  SharedCuda(const SharedCuda&) = delete;
  SharedCuda& operator=(const SharedCuda&) = delete;

  const CudaArray& array() const { return *array_; }

 private:
  std::optional<CudaArray> array_;
};

}  // namespace reduced::python

#endif  // REDUCED_CLIENT_PYTHON_SRC_HELD_H_
