#include "proto/ring/codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "proto/codec/op_call.h"

namespace reduced::ring {
namespace {

// A text in a field that ends with NUL; its last byte always is one. What follows is nobody's, or further texts.
//
// Writes a text at `at`, as far as there is room. Returns where the next one begins.
template <std::size_t size>
std::size_t Put(absl::string_view text, char (&field)[size], std::size_t at = 0) {
  if (at >= size) return size;
  const std::size_t bytes = std::min(text.size(), size - at - 1);
  std::memcpy(field + at, text.data(), bytes);
  field[at + bytes] = '\0';
  return at + bytes + 1;
}
// The text at `at`; empty if that is behind the field.
template <std::size_t size>
std::string Get(const char (&field)[size], std::size_t at = 0) {
  return at >= size ? "" : std::string(field + at, strnlen(field + at, size - at));
}

std::uint8_t Byte(int number) { return static_cast<std::uint8_t>(number); }
// Whether an enum's number fits in a byte. No enum of reduced.proto has others, but a client's number may be any.
bool FitsByte(int number) { return number >= 0 && number <= std::numeric_limits<std::uint8_t>::max(); }

// Stage, and the same field of Timing.
constexpr struct {
  bool (v1::Timing::*has)() const;
  double (v1::Timing::*get)() const;
  void (v1::Timing::*set)(double);
} kTimings[kStages] = {
    {&v1::Timing::has_receive_us, &v1::Timing::receive_us, &v1::Timing::set_receive_us},
    {&v1::Timing::has_queue_us, &v1::Timing::queue_us, &v1::Timing::set_queue_us},
    {&v1::Timing::has_host_copy_us, &v1::Timing::host_copy_us, &v1::Timing::set_host_copy_us},
    {&v1::Timing::has_host_to_device_us, &v1::Timing::host_to_device_us, &v1::Timing::set_host_to_device_us},
    {&v1::Timing::has_scratch_copy_us, &v1::Timing::scratch_copy_us, &v1::Timing::set_scratch_copy_us},
    {&v1::Timing::has_kernel_us, &v1::Timing::kernel_us, &v1::Timing::set_kernel_us},
    {&v1::Timing::has_device_to_host_us, &v1::Timing::device_to_host_us, &v1::Timing::set_device_to_host_us},
    {&v1::Timing::has_total_us, &v1::Timing::total_us, &v1::Timing::set_total_us},
};

std::uint64_t Bits(const v1::Value& value) {
  switch (value.value_case()) {
    case v1::Value::kF:
      return std::bit_cast<std::uint64_t>(value.f());
    case v1::Value::kI:
      return static_cast<std::uint64_t>(value.i());
    case v1::Value::kU:
      return value.u();
    case v1::Value::kB:
      return value.b() ? 1 : 0;
    case v1::Value::VALUE_NOT_SET:
      break;
  }
  return 0;
}

void SetBits(v1::DType dtype, std::uint64_t bits, v1::Value* value) {
  value->set_dtype(dtype);
  if (dtype == v1::DTYPE_BOOL) return value->set_b(bits != 0);
  if (dtype >= v1::DTYPE_I8 && dtype <= v1::DTYPE_I64) return value->set_i(static_cast<std::int64_t>(bits));
  if (dtype >= v1::DTYPE_U8 && dtype <= v1::DTYPE_U64) return value->set_u(bits);
  if (dtype >= v1::DTYPE_F16 && dtype <= v1::DTYPE_F8_E8M0FNU) value->set_f(std::bit_cast<double>(bits));
}

}  // namespace

bool FitsFixedForm(const v1::ReduceRequest& request) {
  const v1::ReduceOptions& options = request.options();
  if (request.has_axes() || request.has_segments() || request.has_keys() || request.has_where()) return false;
  if (request.has_y() || request.has_weights() || request.has_keep() || request.has_write_to()) return false;
  if (request.empty() != v1::EMPTY_POLICY_DEFAULT || request.omit_results()) return false;
  if (!request.calls().empty() || AsksForDistribution(request)) return false;
  if (request.return_state() || !options.pipeline().empty() || !options.device().empty() || options.block_size() != 0) {
    return false;
  }
  if (request.ops().empty() || static_cast<std::size_t>(request.ops_size()) > kMaxOps) return false;
  if (!std::all_of(request.ops().begin(), request.ops().end(), FitsByte)) return false;
  for (const int number : {static_cast<int>(request.array().dtype()), static_cast<int>(options.engine()),
                           static_cast<int>(options.precision()), static_cast<int>(options.nan_policy()),
                           static_cast<int>(options.overflow_policy())}) {
    if (!FitsByte(number)) return false;
  }
  std::int64_t count = 1;
  for (const std::int64_t size : request.array().shape()) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count)) return false;
  }
  const absl::string_view name =
      request.has_region() ? absl::string_view(request.region().token()) : absl::string_view(request.array_id());
  if (request.has_region()) {
    const v1::RegionPart& region = request.region();
    if (region.offset() < 0 || !region.strides().empty() || region.big_endian()) return false;
  }
  return name.size() < kNameBytes && name.find('\0') == absl::string_view::npos;
}

void ToSubmission(const v1::ReduceRequest& request, Submission* slot) {
  const v1::ReduceOptions& options = request.options();
  slot->source = Byte(static_cast<int>(Source::kMessage));
  slot->name[0] = '\0';
  if (request.has_region()) {
    slot->source = Byte(static_cast<int>(Source::kRegion));
    slot->offset = static_cast<std::uint64_t>(request.region().offset());
    Put(request.region().token(), slot->name);
  } else if (request.source_case() == v1::ReduceRequest::kArrayId) {
    slot->source = Byte(static_cast<int>(Source::kResident));
    Put(request.array_id(), slot->name);
  }
  slot->dtype = Byte(request.array().dtype());
  slot->engine = Byte(options.engine());
  slot->precision = Byte(options.precision());
  slot->nan_policy = Byte(options.nan_policy());
  slot->overflow_policy = Byte(options.overflow_policy());
  slot->flags = request.op_errors() ? kOpErrors : 0;
  slot->op_count = Byte(request.ops_size());
  for (int i = 0; i < request.ops_size(); ++i) slot->ops[i] = Byte(request.ops(i));
  slot->count = 1;
  for (const std::int64_t size : request.array().shape()) slot->count *= size;
  slot->ddof = options.ddof();
}

absl::Status FromSubmission(const Submission& slot, v1::ReduceRequest* request) {
  if (slot.op_count > kMaxOps) {
    return absl::InvalidArgumentError(
        absl::StrFormat("op_count: got %d; allowed: 1 to %d, or a message", slot.op_count, kMaxOps));
  }
  switch (static_cast<Source>(slot.source)) {
    case Source::kArena:
      break;
    case Source::kResident:
      request->set_array_id(Get(slot.name));
      break;
    case Source::kRegion:
      request->mutable_region()->set_token(Get(slot.name));
      request->mutable_region()->set_offset(static_cast<std::int64_t>(slot.offset));
      break;
    default:
      return absl::InvalidArgumentError(absl::StrFormat(
          "source: got %d without a message; allowed: 1 (arena), 2 (resident), 3 (region)", slot.source));
  }
  if (!request->has_array() && request->source_case() != v1::ReduceRequest::kArrayId) {
    request->mutable_array()->set_dtype(static_cast<v1::DType>(slot.dtype));
    request->mutable_array()->add_shape(slot.count);
  }
  for (int i = 0; i < slot.op_count; ++i) {
    if (IsOfDistribution(slot.ops[i])) {
      return absl::InvalidArgumentError(
          absl::StrFormat("ops[%d]: got %s, whose answer is an array, in the fixed form; allowed: in a message", i,
                          v1::Op_Name(static_cast<v1::Op>(slot.ops[i]))));
    }
    request->add_ops(static_cast<v1::Op>(slot.ops[i]));
  }
  request->set_op_errors((slot.flags & kOpErrors) != 0);
  v1::ReduceOptions* const options = request->mutable_options();
  options->set_engine(static_cast<v1::Engine>(slot.engine));
  options->set_precision(static_cast<v1::Precision>(slot.precision));
  options->set_nan_policy(static_cast<v1::NanPolicy>(slot.nan_policy));
  options->set_overflow_policy(static_cast<v1::OverflowPolicy>(slot.overflow_policy));
  options->set_ddof(slot.ddof);
  return absl::OkStatus();
}

void ToCompletion(const v1::ReduceResponse& response, Completion* slot) {
  slot->code = 0;
  slot->count = response.count();
  slot->bytes = response.timing().bytes();
  slot->retry_after_ms = 0;
  slot->engine = Byte(response.execution().engine());
  slot->precision = Byte(response.execution().precision());
  const int results = std::min(response.results_size(), static_cast<int>(kMaxOps));
  slot->result_count = Byte(results);
  std::size_t text = Put(response.execution().reason(), slot->text);
  for (int i = 0; i < results; ++i) {
    const v1::Result& result = response.results(i);
    slot->dtypes[i] = Byte(result.value().dtype());
    slot->values[i] = result.has_error() ? static_cast<std::uint64_t>(result.error().code()) : Bits(result.value());
    if (result.has_error()) text = Put(result.error().message(), slot->text, text);
  }
  for (std::size_t i = 0; i < kStages; ++i) {
    const auto has = kTimings[i].has;
    const auto get = kTimings[i].get;
    slot->micros[i] =
        (response.timing().*has)() ? (response.timing().*get)() : std::numeric_limits<double>::quiet_NaN();
  }
  Put(response.execution().device(), slot->device);
  Put(response.execution().pipeline(), slot->pipeline);
}

void ToCompletion(const absl::Status& error, Completion* slot) {
  slot->code = static_cast<std::uint32_t>(error.code());
  slot->result_count = 0;
  Put(error.message(), slot->text);
}

void FromCompletion(const Completion& slot, const v1::ReduceRequest& request, v1::ReduceResponse* response) {
  response->set_count(slot.count);
  const int results = std::min<int>(slot.result_count, kMaxOps);
  v1::Execution* const execution = response->mutable_execution();
  execution->set_reason(Get(slot.text));
  std::size_t text = execution->reason().size() + 1;  // where the next message of an op begins
  for (int i = 0; i < results; ++i) {
    v1::Result* const result = response->add_results();
    result->set_op(i < request.ops_size() ? request.ops(i) : v1::OP_UNSPECIFIED);
    if (slot.dtypes[i] == v1::DTYPE_UNSPECIFIED) {
      result->mutable_error()->set_code(static_cast<std::int32_t>(slot.values[i]));
      result->mutable_error()->set_message(Get(slot.text, text));
      text += result->error().message().size() + 1;
      continue;
    }
    SetBits(static_cast<v1::DType>(slot.dtypes[i]), slot.values[i], result->mutable_value());
  }
  execution->set_engine(static_cast<v1::Engine>(slot.engine));
  execution->set_precision(static_cast<v1::Precision>(slot.precision));
  execution->set_device(Get(slot.device));
  execution->set_pipeline(Get(slot.pipeline));
  v1::Timing* const timing = response->mutable_timing();
  for (std::size_t i = 0; i < kStages; ++i) {
    const auto set = kTimings[i].set;
    if (!std::isnan(slot.micros[i])) (timing->*set)(slot.micros[i]);
  }
  timing->set_bytes(slot.bytes);
  if (slot.bytes > 0 && slot.micros[kKernel] > 0) {
    timing->set_kernel_gb_per_s(static_cast<double>(slot.bytes) / (slot.micros[kKernel] * 1e3));
  }
}

std::string TextOf(const Completion& slot) { return Get(slot.text); }

}  // namespace reduced::ring
