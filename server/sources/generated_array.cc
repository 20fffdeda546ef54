#include "server/sources/generated_array.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cmath>
#include <limits>
#include <system_error>
#include <thread>
#include <type_traits>
#include <vector>

#include "absl/strings/str_format.h"
#include "kernels/algebra/float_format.h"
#include "kernels/system/failpoint.h"
#include "kernels/system/status_macros.h"

namespace reduced::server {
namespace {

constexpr std::int64_t kWordBytes = sizeof(std::uint64_t);
// What a thread generates between two calls of why_stop: about a millisecond of work.
constexpr std::int64_t kStretchWords = (4 << 20) / kWordBytes;

template <class T>
using Lanes = std::array<T, kWordBytes / sizeof(T)>;

template <class T>
std::uint64_t Repeat(T element) {
  Lanes<T> lanes;
  lanes.fill(element);
  return std::bit_cast<std::uint64_t>(lanes);
}

absl::Status NotAnElement(DType dtype, double value, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrFormat("got %.17g of %s; allowed: %s", value, RowOf(dtype).name, allowed));
}

template <class T>
absl::StatusOr<std::uint64_t> FillWordOf(double value) {
  if constexpr (std::is_same_v<T, Bool>) {
    if (value == 0 || value == 1) return Repeat(Bool{static_cast<std::uint8_t>(value)});
    return NotAnElement(kDTypeOf<T>, value, "0 and 1");
  } else if constexpr (kIsFloat<T>) {
    if (const std::optional<T> element = FromNumber<T>(value)) return Repeat(*element);
    const bool infinite = FloatFormat<T>::kBeyond != FloatFormat<T>::kNan;
    return NotAnElement(kDTypeOf<T>, value,
                        absl::StrCat("numbers of its range", infinite ? ", NaN and infinities" : " and NaN"));
  } else {
    constexpr auto kLowest = std::numeric_limits<T>::min();
    constexpr auto kHighest = std::numeric_limits<T>::max();
    constexpr double kBeyond = 2.0 * (kHighest / 2 + 1);  // kHighest + 1; kHighest may not be a double
    if (value == std::trunc(value) && value >= static_cast<double>(kLowest) && value < kBeyond) {
      return Repeat(static_cast<T>(value));
    }
    return NotAnElement(kDTypeOf<T>, value, absl::StrFormat("whole numbers from %d to %d", kLowest, kHighest));
  }
}

// The mixing function of splitmix64: every bit of x affects every bit of the result.
constexpr std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

// Floats: multiples of 2^-kDigits in [-1, 1); those without a sign: powers of two in [2^-8, 2^8). Integers: half of
// their range, around 0 or from 0 up.
template <class T>
T ElementFrom(std::uint64_t random) {
  if constexpr (std::is_same_v<T, Bool>) {
    return Bool{static_cast<std::uint8_t>(random & 1)};
  } else if constexpr (std::is_same_v<T, F8E8M0>) {
    return T{static_cast<std::uint8_t>(FloatFormat<T>::kBias - 8 + static_cast<int>(random & 0xf))};
  } else if constexpr (kIsFloat<T>) {
    const std::int64_t multiple =
        static_cast<std::int64_t>(random << (64 - 8 * sizeof(T))) >> (63 - FloatFormat<T>::kSignificant);
    return FromDouble<T>(static_cast<double>(multiple) /
                         static_cast<double>(std::int64_t{1} << FloatFormat<T>::kSignificant));
  } else {
    return static_cast<T>(static_cast<T>(random) >> 1);
  }
}

template <class T>
std::uint64_t RandomWord(std::uint64_t random) {
  Lanes<T> lanes;
  for (std::size_t i = 0; i < lanes.size(); ++i) lanes[i] = ElementFrom<T>(random >> (8 * sizeof(T) * i));
  return std::bit_cast<std::uint64_t>(lanes);
}

void GenerateWords(const Contents& contents, std::int64_t begin, std::int64_t end, std::uint64_t* words) {
  if (contents.fill.has_value()) {
    std::fill(words + begin, words + end, *contents.fill);
    return;
  }
  if (contents.elements != nullptr) {
    const std::int64_t elements = kWordBytes / RowOf(contents.dtype).bytes;  // of a word
    contents.elements(begin * elements, end * elements, words);
    return;
  }
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;      // splitmix64's increment
  const std::uint64_t start = Mix(contents.seed + kGolden);  // mixed, so that two seeds do not give shifted copies
  VisitDType(contents.dtype, [&]<class T>(std::type_identity<T>) {
    for (std::int64_t i = begin; i < end; ++i) {
      words[i] = RandomWord<T>(Mix(start + static_cast<std::uint64_t>(i) * kGolden));
    }
  });
}

}  // namespace

absl::StatusOr<std::uint64_t> FillWord(DType dtype, double value) {
  return VisitDType(dtype, [value]<class T>(std::type_identity<T>) { return FillWordOf<T>(value); });
}

void GeneratedArray::Unmap::operator()(void* memory) const { munmap(memory, bytes); }

absl::StatusOr<GeneratedArray> GeneratedArray::Generate(const Contents& contents, std::int64_t bytes, int threads,
                                                        absl::FunctionRef<absl::Status()> why_stop) {
  const std::int64_t words = (bytes + kWordBytes - 1) / kWordBytes;
  const auto mapped = static_cast<std::size_t>(words * kWordBytes);
  void* const memory = FAILPOINT("ladder/map")
                           ? MAP_FAILED
                           : mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrFormat("the server has no memory for an array of %d bytes", bytes));
  }
  GeneratedArray array(Memory(memory, {mapped}));
  madvise(memory, mapped, MADV_HUGEPAGE);  // if available: otherwise mapping pages takes most of the time

  std::atomic<std::int64_t> next = 0;
  const auto generate = [&] {
    for (std::int64_t begin = 0; (begin = next.fetch_add(kStretchWords)) < words && why_stop().ok();) {
      GenerateWords(contents, begin, std::min(begin + kStretchWords, words), static_cast<std::uint64_t*>(memory));
    }
  };
  std::vector<std::thread> others;
  const std::int64_t stretches = (words + kStretchWords - 1) / kStretchWords;
  try {
    while (static_cast<std::int64_t>(others.size()) + 1 < std::min<std::int64_t>(threads, stretches)) {
      if (FAILPOINT("ladder/thread")) throw std::system_error(EAGAIN, std::generic_category());
      others.emplace_back(generate);
    }
  } catch (const std::system_error&) {  // no more threads can be had: those that there are generate all of it
  }
  generate();
  for (std::thread& thread : others) thread.join();
  RETURN_IF_ERROR(why_stop());
  return array;
}

}  // namespace reduced::server
