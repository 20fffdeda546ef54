// Reductions of partitions, as tests ask for them.
#ifndef REDUCED_TESTS_CONTRACT_PARTITIONS_H_
#define REDUCED_TESTS_CONTRACT_PARTITIONS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "kernels/engine/engine.h"
#include "tests/contract/answers.h"
#include "tests/support/data.h"
#include "tests/support/runs.h"

namespace reduced::test {

template <class T>
Bytes BytesOf(const std::vector<T>& values) {
  Bytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline SideArray SideOf(DType dtype, const Bytes& bytes) {
  return {dtype, std::ssize(bytes) / RowOf(dtype).bytes, {bytes.data()}};
}

// What a reduction of a partition answers.
struct Reply {
  absl::Status status;
  std::vector<std::int64_t> keys;  // that were found
  std::unique_ptr<Answers> answers;
  std::int64_t outputs = -1;  // -1: `place` was not called
};

template <class T>
std::vector<std::int64_t> Widened(const std::byte* keys, std::int64_t count) {
  std::vector<T> values(static_cast<std::size_t>(count));
  if (count > 0) std::memcpy(values.data(), keys, values.size() * sizeof(T));
  return {values.begin(), values.end()};
}

inline Reply ReducePartition(Engine& engine, Job job, const Partition& partition) {
  Reply reply;
  job.partition = partition;
  job.place = [&](std::int64_t outputs, std::int64_t found,
                  const std::byte* keys) -> absl::StatusOr<std::vector<std::byte*>> {
    reply.outputs = outputs;
    if (keys != nullptr) {
      reply.keys = VisitDType(partition.keys->keys.dtype, [&]<class T>(std::type_identity<T>) {
        if constexpr (std::is_integral_v<T>) {
          return Widened<T>(keys, found);
        } else {
          return std::vector<std::int64_t>();
        }
      });
    }
    reply.answers = std::make_unique<Answers>(job.spec, outputs);
    return reply.answers->data;
  };
  reply.status = ReduceAndWait(engine, job).status();
  EXPECT_TRUE(reply.answers == nullptr || reply.answers->GuardsStand());
  return reply;
}

}  // namespace reduced::test

#endif  // REDUCED_TESTS_CONTRACT_PARTITIONS_H_
