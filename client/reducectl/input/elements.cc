#include "client/reducectl/input/elements.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "kernels/system/status_macros.h"

namespace reduced::client {
namespace {

// From this size on sharing a file is faster than sending it: tests/bench/bench_via.py. Up to 3 MiB there was no
// difference. 4 MiB took 4.2 ms instead of 5.1 ms as a stream, 256 MiB 76 ms instead of 145 ms. Files of this size that
// are not shared are read as they are sent.
constexpr std::int64_t kLargeBytes = std::int64_t{4} << 20;

void SwapBytes(char* data, std::size_t bytes, std::size_t width) {
  if (width == 1) return;
  for (char* at = data; at != data + bytes; at += width) std::reverse(at, at + width);
}

// Whether the order of the elements in memory is not that of their positions.
bool IsTransposed(const Layout& layout) {
  const auto extended = [](std::int64_t extent) { return extent > 1; };
  return layout.fortran && std::count_if(layout.shape.begin(), layout.shape.end(), extended) > 1;
}

// The elements of an array in Fortran order, in C order.
std::string InCOrder(const char* from, const Layout& layout, std::size_t width) {
  std::vector<std::size_t> extents(layout.shape.begin(), layout.shape.end()), strides;
  std::size_t count = 1;
  for (const std::size_t extent : extents) {
    strides.push_back(count * width);
    count *= extent;
  }
  std::string to(count * width, '\0');
  std::vector<std::size_t> index(extents.size());
  const std::size_t last = extents.size() - 1;
  const char* row = from;
  for (char* at = to.data(); at != to.data() + to.size();) {
    for (std::size_t i = 0; i < extents[last]; ++i, at += width) std::memcpy(at, row + i * strides[last], width);
    for (std::size_t d = last; d-- > 0;) {
      row += strides[d];
      if (++index[d] < extents[d]) break;
      row -= strides[d] * extents[d];
      index[d] = 0;
    }
  }
  return to;
}

absl::Status CheckEnd(PeekedBytes& source) {
  ASSIGN_OR_RETURN(const absl::string_view next, source.Peek(kNextBytes));
  return next.empty() ? absl::OkStatus() : GoesOn(next, "more bytes than the array has");
}

absl::Status Shortened() { return absl::InvalidArgumentError("became shorter while it was read"); }

// Reads elements as they are sent.
void SetReader(Elements elements, Input* input) {
  const Layout layout = input->layout;
  const auto width = static_cast<std::size_t>(*DTypeBytes(layout.dtype));
  const auto reading = input->reading = std::make_shared<Reading>();
  input->layout.offset = 0;
  input->layout.big_endian = false;
  input->reader.in_order = elements.file == nullptr;
  input->reader.read = [=](std::int64_t offset, char* to, std::int64_t bytes) {
    const absl::Time start = absl::Now();
    absl::Status status;
    if (elements.file != nullptr) {
      const absl::StatusOr<std::size_t> got =
          elements.file->ReadAt(static_cast<std::int64_t>(layout.offset) + offset, to, static_cast<std::size_t>(bytes));
      status = got.status();
      if (got.ok() && static_cast<std::int64_t>(*got) < bytes) {
        status = Shortened();
      }
    } else {
      status = ReadExactly(*elements.source, to, bytes);
      if (status.ok() && offset + bytes == elements.bytes) status = CheckEnd(*elements.source);
    }
    if (status.ok() && layout.big_endian) SwapBytes(to, static_cast<std::size_t>(bytes), width);
    reading->Add(absl::Now() - start, status);
    return status;
  };
}

// Reads all elements. `offset`: of the first one in a file.
absl::Status ReadNow(const Elements& elements, std::size_t offset, char* to, const OnProgress& on_read) {
  constexpr std::int64_t kStep = std::int64_t{4} << 20;
  for (std::int64_t done = 0; done < elements.bytes;) {
    const std::int64_t step = std::min(kStep, elements.bytes - done);
    if (elements.file == nullptr) {
      RETURN_IF_ERROR(ReadExactly(*elements.source, to + done, step));
    } else {
      ASSIGN_OR_RETURN(const std::size_t got, elements.file->ReadAt(static_cast<std::int64_t>(offset) + done, to + done,
                                                                    static_cast<std::size_t>(step)));
      if (static_cast<std::int64_t>(got) < step) return Shortened();
    }
    done += step;
    if (on_read != nullptr) on_read(done, elements.bytes);
  }
  return elements.file == nullptr ? CheckEnd(*elements.source) : absl::OkStatus();
}

}  // namespace

absl::Status ReadExactly(ByteSource& source, char* to, std::int64_t bytes) {
  ASSIGN_OR_RETURN(const std::size_t got, source.Read(to, static_cast<std::size_t>(bytes)));
  if (static_cast<std::int64_t>(got) == bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("is truncated: ", bytes - static_cast<std::int64_t>(got), " bytes or more of data are missing"));
}

absl::StatusOr<Input> Load(Elements elements, Layout layout, const InputOptions& options) {
  Input input{.layout = std::move(layout)};
  const bool reorder = options.positions && IsTransposed(input.layout);
  const bool large = elements.bytes >= kLargeBytes;
  bool share = options.hold == Hold::kShare || (options.hold == Hold::kShareLarge && large &&
                                                elements.file != nullptr && elements.bytes <= UnsizedLimit());
  if (large && !share && !reorder && !options.in_memory) {
    SetReader(std::move(elements), &input);
    return input;
  }
  if (const std::int64_t limit = UnsizedLimit(); elements.file == nullptr && elements.bytes > limit) {
    return absl::ResourceExhaustedError(absl::StrCat("data: got ", elements.bytes, " bytes; allowed: at most ", limit,
                                                     ", a third of the memory that is available"));
  }
  const absl::Time start = absl::Now();
  absl::StatusOr<Memory> memory = Memory::Allocate(elements.bytes, share);
  if (!memory.ok() && share && options.hold == Hold::kShareLarge) {
    share = false;
    memory = Memory::Allocate(elements.bytes, share);
  }
  if (!memory.ok()) return memory.status();
  RETURN_IF_ERROR(ReadNow(elements, input.layout.offset, memory->data(), options.on_read));
  const auto width = static_cast<std::size_t>(*DTypeBytes(input.layout.dtype));
  if (input.layout.big_endian) SwapBytes(memory->data(), static_cast<std::size_t>(elements.bytes), width);
  if (reorder && elements.bytes > 0) {
    const std::string ordered = InCOrder(memory->data(), input.layout, width);
    std::copy(ordered.begin(), ordered.end(), memory->data());
  }
  input.layout.offset = 0;
  input.layout.big_endian = false;
  input.memory = *std::move(memory);
  input.read_time = absl::Now() - start;
  return input;
}

}  // namespace reduced::client
