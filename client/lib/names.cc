#include "client/lib/names.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/algebra/dtype.h"
#include "reduced/array.h"
#include "reduced/v1/reduced.pb.h"

namespace reduced::client {
namespace {

using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;

// The names of values 0 that users can't give.
bool IsPlaceholder(absl::string_view name) { return name == "unspecified" || name == "default"; }

// The prefix of all names of an enum. The name of its first value is the prefix and one word, as in NAN_POLICY_DEFAULT.
absl::string_view PrefixOf(const EnumDescriptor* type) {
  const absl::string_view first = type->value(0)->name();
  return first.substr(0, first.rfind('_') + 1);
}

// Whether `value` has this name, which is without the prefix and in lower case. As NameOfValue(value) == name, without
// a copy: every request asks this for some names.
bool HasName(const EnumValueDescriptor* value, std::size_t prefix_bytes, absl::string_view name) {
  const absl::string_view full = value->name();
  return full.size() == prefix_bytes + name.size() &&
         std::equal(name.begin(), name.end(), full.begin() + static_cast<std::ptrdiff_t>(prefix_bytes),
                    [](char own, char upper) { return own == absl::ascii_tolower(static_cast<unsigned char>(upper)); });
}

std::string NameOfValue(const EnumValueDescriptor* value) {
  return absl::AsciiStrToLower(absl::StripPrefix(value->name(), PrefixOf(value->type())));
}

}  // namespace

std::vector<std::string> NamesOf(const EnumDescriptor* type) {
  std::vector<std::string> names;
  for (int i = 0; i < type->value_count(); ++i) {
    std::string name = NameOfValue(type->value(i));
    if (!IsPlaceholder(name)) names.push_back(std::move(name));
  }
  return names;
}

std::string NameOf(const EnumDescriptor* type, int number) {
  const EnumValueDescriptor* value = type->FindValueByNumber(number);
  return value == nullptr ? std::to_string(number) : NameOfValue(value);
}

std::vector<std::string> NamesByNumber(const EnumDescriptor* type) {
  std::vector<std::string> names;
  for (int i = 0; i < type->value_count(); ++i) {
    for (int number = static_cast<int>(names.size()); number <= type->value(i)->number(); ++number) {
      names.push_back(NameOf(type, number));
    }
  }
  return names;
}

absl::StatusOr<int> NumberOf(const EnumDescriptor* type, absl::string_view field, absl::string_view name) {
  const std::size_t prefix_bytes = PrefixOf(type).size();
  for (int i = 0; i < type->value_count() && !IsPlaceholder(name); ++i) {
    if (HasName(type->value(i), prefix_bytes, name)) return type->value(i)->number();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": got \"", name, "\"; allowed: ", absl::StrJoin(NamesOf(type), ", ")));
}

std::vector<std::string> OpNames() { return NamesOf(v1::Op_descriptor()); }
std::vector<std::string> DTypeNames() { return NamesOf(v1::DType_descriptor()); }
std::vector<std::string> EngineNames() { return NamesOf(v1::Engine_descriptor()); }
std::vector<std::string> PrecisionNames() { return NamesOf(v1::Precision_descriptor()); }
std::vector<std::string> NanPolicyNames() { return NamesOf(v1::NanPolicy_descriptor()); }
std::vector<std::string> OverflowPolicyNames() { return NamesOf(v1::OverflowPolicy_descriptor()); }

absl::StatusOr<std::int64_t> DTypeBytes(const std::string& dtype) {
  if (const std::optional<DType> known = DTypeFromName(dtype); known.has_value()) return RowOf(*known).bytes;
  return NumberOf(v1::DType_descriptor(), "dtype", dtype).status();
}

absl::StatusOr<std::int64_t> ArrayBytes(const std::string& dtype, std::span<const std::int64_t> shape) {
  absl::StatusOr<std::int64_t> bytes = DTypeBytes(dtype);
  if (!bytes.ok()) return bytes;
  bool empty = false;
  bool overflow = false;
  for (const std::int64_t extent : shape) {
    if (extent < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("shape: got (", absl::StrJoin(shape, ", "), "); allowed: dimensions of 0 and more"));
    }
    empty = empty || extent == 0;
    overflow = overflow || __builtin_mul_overflow(*bytes, extent, &*bytes);
  }
  if (empty) return 0;
  if (overflow) {
    return absl::InvalidArgumentError(absl::StrCat("shape: got (", absl::StrJoin(shape, ", "), ") of ", dtype,
                                                   "; allowed: at most ", std::numeric_limits<std::int64_t>::max(),
                                                   " bytes"));
  }
  return bytes;
}

}  // namespace reduced::client
