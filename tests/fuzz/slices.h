// A message as the transport has it: in slices that are cut anywhere.
#ifndef REDUCED_TESTS_FUZZ_SLICES_H_
#define REDUCED_TESTS_FUZZ_SLICES_H_

#include <vector>

#include "absl/strings/string_view.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/slice.h"
#include "tests/fuzz/fuzz.h"

namespace reduced::fuzz {

// `cuts`: a byte for each slice, its length, which may be 0; the last slice has what is left.
inline grpc::ByteBuffer Sliced(absl::string_view message, absl::string_view cuts) {
  std::vector<grpc::Slice> slices;
  Input rest(message);
  for (const char cut : cuts) {
    const absl::string_view slice = rest.Take(static_cast<unsigned char>(cut));
    slices.emplace_back(slice.data(), slice.size());
  }
  slices.emplace_back(rest.rest().data(), rest.rest().size());
  return {slices.data(), slices.size()};
}

}  // namespace reduced::fuzz

#endif  // REDUCED_TESTS_FUZZ_SLICES_H_
