// Passing on errors: what every function that returns absl::Status or absl::StatusOr does between its steps.
#ifndef REDUCED_KERNELS_SYSTEM_STATUS_MACROS_H_
#define REDUCED_KERNELS_SYSTEM_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the status that an expression has, unless it is OK.
#define RETURN_IF_ERROR(...)                                                                      \
  do {                                                                                            \
    if (absl::Status reduced_status = (__VA_ARGS__); !reduced_status.ok()) return reduced_status; \
  } while (false)

// ASSIGN_OR_RETURN(const Layout layout, ParseLayout(text)): assigns the value of a StatusOr, or returns its status. It
// is two statements, so it needs the braces of a block.
#define ASSIGN_OR_RETURN(to, ...) REDUCED_ASSIGN_OR_RETURN(REDUCED_JOIN(value_or_, __LINE__), to, __VA_ARGS__)
#define REDUCED_ASSIGN_OR_RETURN(name, to, ...)    \
  auto name = (__VA_ARGS__);                       \
  if (!name.ok()) return std::move(name).status(); \
  to = *std::move(name)
#define REDUCED_JOIN(a, b) REDUCED_JOIN_EXPANDED(a, b)
#define REDUCED_JOIN_EXPANDED(a, b) a##b

#endif  // REDUCED_KERNELS_SYSTEM_STATUS_MACROS_H_
