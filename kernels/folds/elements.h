// How folds read elements and write answers.
#ifndef REDUCED_KERNELS_FOLDS_ELEMENTS_H_
#define REDUCED_KERNELS_FOLDS_ELEMENTS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op_call.h"
#include "kernels/algebra/portable.h"
#include "kernels/algebra/spec.h"

namespace reduced {

// Element `i` of those at any address.
template <class T>
T ElementAt(const void* elements, std::int64_t i) {
  T element;
  std::memcpy(&element, static_cast<const std::byte*>(elements) + i * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
  return element;
}

// The values of elements of an integer dtype.
inline void LoadIntegers(DType dtype, const void* elements, std::int64_t count, Int128* to) {
  VisitDType(dtype, [&]<class T>(std::type_identity<T>) {
    if constexpr (!kIsFloat<T>) {
      for (std::int64_t i = 0; i < count; ++i) to[i] = ToInteger(ElementAt<T>(elements, i));
    }
  });
}

// Writes answer `i` of those at any address.
template <class T>
void StoreAt(T value, std::int64_t i, std::byte* answers) {
  std::memcpy(answers + i * static_cast<std::int64_t>(sizeof(T)), &value, sizeof(T));
}

// That an output has too few elements for an answer.
inline absl::Status TooFew(const ReduceSpec& spec, const OpCall& call, std::int64_t counted) {
  const std::int64_t least = LeastElements(call, spec.dtype);
  return absl::InvalidArgumentError(absl::StrFormat(
      "op %s: got %s; allowed: at least %d element%s%s", RowOf(call.op).name,
      counted == 0 ? std::string("no element") : absl::StrFormat("%d element%s", counted, counted == 1 ? "" : "s"),
      least, least == 1 ? "" : "s", spec.nan_policy == NanPolicy::kOmit ? " that are not NaN" : ""));
}

}  // namespace reduced

#endif  // REDUCED_KERNELS_FOLDS_ELEMENTS_H_
