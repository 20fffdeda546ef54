#include "client/lib/checks.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_join.h"
#include "client/lib/names.h"
#include "kernels/system/quoted.h"
#include "reduced/array.h"

namespace reduced::client {
namespace {

// The members of Value, by Value::ValueCase.
constexpr const char* kMembers[] = {"none", "", "f", "i", "u", "b"};

v1::Value::ValueCase MemberOf(const DTypeRow& row) {
  if (row.dtype == DType::kBool) return v1::Value::kB;
  return row.is_float ? v1::Value::kF : row.is_signed ? v1::Value::kI : v1::Value::kU;
}

// Whether the value is one of its dtype, whose member is set.
bool Fits(const DTypeRow& row, const v1::Value& value) {
  const int unused_bits = 64 - 8 * row.bytes;
  switch (value.value_case()) {
    case v1::Value::kF:
      return row.bytes == 8 || std::isnan(value.f()) || static_cast<float>(value.f()) == value.f();
    case v1::Value::kI:
      return value.i() ==
             static_cast<std::int64_t>(static_cast<std::uint64_t>(value.i()) << unused_bits) >> unused_bits;
    case v1::Value::kU:
      return value.u() == value.u() << unused_bits >> unused_bits;
    default:
      return true;
  }
}

}  // namespace

absl::Status CheckAmounts(std::initializer_list<Number> numbers) {
  for (const auto& [field, value] : numbers) {
    if (!(value >= 0 && value <= std::numeric_limits<double>::max())) {
      return Wrong(field, value, "finite numbers from 0");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAmounts(const google::protobuf::Message& message) {
  using Field = google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& fields = *message.GetReflection();
  absl::Status status;
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const Field* const field = message.GetDescriptor()->field(i);
    if (field->is_repeated()) continue;
    const char* const name = field->name().c_str();
    if (field->cpp_type() == Field::CPPTYPE_INT32) {
      status.Update(CheckAmounts({{name, fields.GetInt32(message, field)}}));
    } else if (field->cpp_type() == Field::CPPTYPE_INT64) {
      status.Update(CheckAmounts({{name, fields.GetInt64(message, field)}}));
    } else if (field->cpp_type() == Field::CPPTYPE_DOUBLE) {
      status.Update(CheckAmounts({{name, fields.GetDouble(message, field)}}));
    }
  }
  return status;
}

absl::Status CheckName(absl::string_view field, const std::string& name) {
  return name.empty() ? Wrong(field, "none", "a name") : absl::OkStatus();
}

absl::Status CheckChosen(absl::string_view field, const std::string& name, const std::string& chosen) {
  if (!chosen.empty() && name != chosen) return Wrong(field, Quoted(name), Quoted(chosen));
  return CheckName(field, name);
}

absl::Status CheckValue(const v1::Value& value) {
  const std::optional<DType> dtype = DTypeFromNumber(value.dtype());
  if (!dtype.has_value()) {
    return Wrong("value.dtype", NameOf(value.dtype()), absl::StrJoin(DTypeNames(), ", "));
  }
  const DTypeRow& row = RowOf(*dtype);
  if (value.value_case() != MemberOf(row)) {
    return Wrong("value", kMembers[value.value_case()],
                 absl::StrCat(kMembers[MemberOf(row)], ", the member of ", DTypeName(row.dtype)));
  }
  if (!Fits(row, value))
    return Wrong("value", value.ShortDebugString(), absl::StrCat("values of ", DTypeName(row.dtype)));
  return absl::OkStatus();
}

bool IsId(absl::string_view text) {
  constexpr std::size_t kMaxIdBytes = 64;
  return !text.empty() && text.size() <= kMaxIdBytes && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '-' || c == '_';
  });
}

}  // namespace reduced::client
