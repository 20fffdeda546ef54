#include "kernels/matmul/host.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <system_error>
#include <thread>
#include <type_traits>

#include "kernels/algebra/portable.h"

namespace reduced {
namespace {

// Products of integers are modulo 2^32, which unsigned arithmetic is defined to be.
template <class Visitor>
decltype(auto) VisitType(DType dtype, Visitor&& visit) {
  if (dtype == DType::kF32) return visit(std::type_identity<float>{});
  if (dtype == DType::kF64) return visit(std::type_identity<double>{});
  return visit(std::type_identity<std::uint32_t>{});
}

// What the expected product is computed and stored in.
template <class T>
using Exact = std::conditional_t<std::is_floating_point_v<T>, double, std::uint64_t>;

// Sums over k of a[i][k] b[k][j] for the source's fill: with s1 and s2 the sums of k and of k squared,
// (2 k + i) (j - k) adds up to 2 j s1 - 2 s2 + i j k - i s1.
Int128 SourceProduct(std::int64_t k, std::int64_t i, std::int64_t j) {
  const Int128 s1 = Int128{k} * (k - 1) / 2;
  const Int128 s2 = Int128{k} * (k - 1) * (2 * k - 1) / 6;
  return 2 * j * s1 - 2 * s2 + Int128{i} * j * k - i * s1;
}

// Rows [begin, end) of the product, in blocks that stay in the caches.
template <class T>
void MultiplyRows(const MatmulSpec& spec, const T* a, const T* b, std::int64_t begin, std::int64_t end,
                  Exact<T>* values, absl::FunctionRef<absl::Status()> why_stop) {
  constexpr std::int64_t kColumns = 512;
  constexpr std::int64_t kDepth = 128;
  for (std::int64_t column = 0; column < spec.n; column += kColumns) {
    const std::int64_t columns = std::min(kColumns, spec.n - column);
    for (std::int64_t i = begin; i < end; ++i) std::fill_n(values + i * spec.n + column, columns, Exact<T>{});
    for (std::int64_t first = 0; first < spec.k && why_stop().ok(); first += kDepth) {
      const std::int64_t last = std::min(first + kDepth, spec.k);
      for (std::int64_t i = begin; i < end; ++i) {
        Exact<T>* const row = values + i * spec.n + column;
        for (std::int64_t step = first; step < last; ++step) {
          const Exact<T> factor = a[i * spec.k + step];
          const T* const others = b + step * spec.n + column;
          for (std::int64_t j = 0; j < columns; ++j) row[j] += factor * static_cast<Exact<T>>(others[j]);
        }
      }
    }
  }
}

}  // namespace

void MultiplyOnHost(const MatmulSpec& spec, const void* a, const void* b, void* transposed, void* c,
                    absl::FunctionRef<bool()> stop) {
  VisitType(spec.dtype, [&]<class T>(std::type_identity<T>) {
    const auto* const factors = static_cast<const T*>(a);
    const auto* const others = static_cast<const T*>(b);
    auto* const columns = static_cast<T*>(transposed);
    for (std::int64_t i = 0; i < spec.k && !stop(); ++i) {
      for (std::int64_t j = 0; j < spec.n; ++j) columns[j * spec.k + i] = others[i * spec.n + j];
    }
    const std::int64_t sums_between_stops = (std::int64_t{1} << 20) / std::max<std::int64_t>(spec.k, 4096);
    for (std::int64_t i = 0; i < spec.m; ++i) {
      for (std::int64_t j = 0; j < spec.n; ++j) {
        if (j % sums_between_stops == 0 && stop()) return;
        T sum{};
        for (std::int64_t step = 0; step < spec.k; ++step) {
          sum += factors[i * spec.k + step] * columns[j * spec.k + step];
        }
        static_cast<T*>(c)[i * spec.n + j] = sum;
      }
    }
  });
}

void FillSourceA(const MatmulSpec& spec, std::int64_t begin, std::int64_t end, void* a) {
  VisitType(spec.dtype, [&]<class T>(std::type_identity<T>) {
    for (std::int64_t at = begin; at < end; ++at) {
      static_cast<T*>(a)[at] = static_cast<T>(2 * (at % spec.k) + at / spec.k);
    }
  });
}

void FillSourceB(const MatmulSpec& spec, std::int64_t begin, std::int64_t end, void* b) {
  VisitType(spec.dtype, [&]<class T>(std::type_identity<T>) {
    for (std::int64_t at = begin; at < end; ++at) {
      static_cast<T*>(b)[at] = static_cast<T>(at % spec.n - at / spec.n);
    }
  });
}

absl::Status ExpectedProduct::Study(const void* a, const void* b, absl::FunctionRef<absl::Status()> why_stop) {
  row_lengths_.assign(static_cast<std::size_t>(spec_.m), 0);
  column_lengths_.assign(static_cast<std::size_t>(spec_.n), 0);
  VisitType(spec_.dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_floating_point_v<T>) {
      for (std::int64_t i = 0; i < spec_.m && why_stop().ok(); ++i) {
        for (std::int64_t step = 0; step < spec_.k; ++step) {
          const double x = static_cast<const T*>(a)[i * spec_.k + step];
          row_lengths_[static_cast<std::size_t>(i)] += x * x;
        }
      }
      for (std::int64_t step = 0; step < spec_.k && why_stop().ok(); ++step) {
        for (std::int64_t j = 0; j < spec_.n; ++j) {
          const double x = static_cast<const T*>(b)[step * spec_.n + j];
          column_lengths_[static_cast<std::size_t>(j)] += x * x;
        }
      }
    }
  });
  for (double& length : row_lengths_) length = std::sqrt(length);
  for (double& length : column_lengths_) length = std::sqrt(length);
  return why_stop();
}

absl::Status ExpectedProduct::Multiply(const void* a, const void* b, int threads, void* values,
                                       absl::FunctionRef<absl::Status()> why_stop) {
  constexpr std::int64_t kRows = 4;
  values_ = values;
  std::atomic<std::int64_t> next = 0;
  const auto multiply = [&] {
    VisitType(spec_.dtype, [&]<class T>(std::type_identity<T>) {
      for (std::int64_t row = 0; (row = next.fetch_add(kRows)) < spec_.m && why_stop().ok();) {
        MultiplyRows(spec_, static_cast<const T*>(a), static_cast<const T*>(b), row, std::min(row + kRows, spec_.m),
                     static_cast<Exact<T>*>(values), why_stop);
      }
    });
  };
  std::vector<std::thread> others;
  const std::int64_t stretches = (spec_.m + kRows - 1) / kRows;
  try {
    while (static_cast<std::int64_t>(others.size()) + 1 < std::min<std::int64_t>(threads, stretches)) {
      others.emplace_back(multiply);
    }
  } catch (const std::system_error&) {  // no more threads can be had: those that there are do all of it
  }
  multiply();
  for (std::thread& thread : others) thread.join();
  return why_stop();
}

bool ExpectedProduct::Allows(const void* c, absl::FunctionRef<bool()> stop) const {
  return VisitType(spec_.dtype, [&]<class T>(std::type_identity<T>) {
    // Of the rung, and of the expected product.
    const auto k = static_cast<double>(spec_.k);
    const double roundings = k * static_cast<double>(std::numeric_limits<T>::epsilon()) / 2 + (k + 2) * 0x1p-53;
    for (std::int64_t i = 0; i < spec_.m; ++i) {
      if (stop()) return false;
      for (std::int64_t j = 0; j < spec_.n; ++j) {
        const T answer = static_cast<const T*>(c)[i * spec_.n + j];
        const Exact<T> expected = values_ == nullptr ? static_cast<Exact<T>>(SourceProduct(spec_.k, i, j))
                                                     : static_cast<const Exact<T>*>(values_)[i * spec_.n + j];
        if constexpr (std::is_floating_point_v<T>) {
          const double length =
              row_lengths_[static_cast<std::size_t>(i)] * column_lengths_[static_cast<std::size_t>(j)];
          if (!(std::abs(static_cast<double>(answer) - expected) <= roundings * length)) return false;
        } else if (answer != static_cast<T>(expected)) {
          return false;
        }
      }
    }
    return true;
  });
}

}  // namespace reduced
