#include "server/self_check.h"

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/algebra/finalize.h"
#include "kernels/engine/hang_watch.h"
#include "kernels/system/status_macros.h"

namespace reduced::server {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(30);  // of one answer
constexpr std::int32_t kCounts[] = {1000, 100'003};     // elements: 1, 2, 3, ...

std::string Text(const Value& value) {
  return std::visit([](auto each) { return absl::StrCat(each); }, value.value);
}

template <class T>
constexpr DType kElementDType = std::is_same_v<T, float> ? DType::kF32 : DType::kI32;

template <class T>
std::vector<Value> CorrectAnswers(std::int64_t count) {
  using Held = std::conditional_t<std::is_same_v<T, float>, double, std::int64_t>;
  return {{std::is_same_v<T, float> ? DType::kF64 : DType::kI64, static_cast<Held>(count * (count + 1) / 2)},
          {kElementDType<T>, Held{1}},
          {kElementDType<T>, static_cast<Held>(count)},
          {DType::kU64, static_cast<std::uint64_t>(count - 1)},
          {DType::kF64, static_cast<double>(count + 1) / 2}};
}

template <class T>
absl::Status CheckOne(Engine& engine, std::int32_t count, const ArrayRef& array) {
  const ReduceSpec spec{.dtype = kElementDType<T>,
                        .count = count,
                        .ops = {Op::kSum, Op::kMin, Op::kMax, Op::kArgmax, Op::kMean},
                        .precision = Precision::kExact};
  absl::StatusOr<Answer> result = absl::UnknownError("");
  absl::Notification done;
  engine.Reduce(Job{.spec = spec, .array = array, .deadline = absl::Now() + kTimeout},
                [&](absl::StatusOr<Answer> answer) {
                  result = std::move(answer);
                  done.Notify();
                });
  done.WaitForNotification();
  if (!result.ok()) return result.status();
  ASSIGN_OR_RETURN(const std::vector<Value> answers, Finalize(spec, result->state));
  const std::vector<Value> right = CorrectAnswers<T>(count);
  for (std::size_t i = 0; i < right.size(); ++i) {
    if (answers[i] == right[i]) continue;
    return absl::InternalError(absl::StrCat(std::string(RowOf(spec.ops[i]).name), " of 1 to ", count, ", as ",
                                            std::string(RowOf(spec.dtype).name), ": got ", Text(answers[i]),
                                            "; correct: ", Text(right[i])));
  }
  return absl::OkStatus();
}

template <class T>
absl::Status CheckEngine(Engine& engine, std::int32_t count) {
  std::vector<T> elements(count);
  std::iota(elements.begin(), elements.end(), T{1});
  absl::Status status = CheckOne<T>(engine, count, ArrayRef{.data = elements.data()});
  const auto bytes = static_cast<std::int64_t>(count * sizeof(T));
  const DeviceInfo device = engine.info();
  if (!status.ok() || device.array_bytes_limit - device.array_bytes < bytes) return status;
  const absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = engine.Allocate(bytes);
  if (absl::IsResourceExhausted(memory.status())) return absl::OkStatus();  // the device is full, which is no fault
  if (!memory.ok()) return memory.status();
  status = (*memory)->Write(0, elements.data(), bytes);
  return status.ok() ? CheckOne<T>(engine, count, (*memory)->array()) : status;
}

}  // namespace

absl::Status SelfCheck(const Engines& engines, const OnHang& on_hang) {
  const HangWatch watch(
      [&engines] {
        for (const auto& engine : engines.all()) {
          const absl::Status health = engine->Health();
          if (!health.ok())
            return absl::Status(health.code(), absl::StrCat(engine->info().name, ": ", health.message()));
        }
        return absl::OkStatus();
      },
      on_hang);
  for (const auto& engine : engines.all()) {
    for (const std::int32_t count : kCounts) {
      absl::Status status = CheckEngine<std::int32_t>(*engine, count);
      if (status.ok()) status = CheckEngine<float>(*engine, count);
      if (status.ok()) continue;
      return absl::Status(status.code(),
                          absl::StrCat("engine ", engine->info().name, " failed its self-check: ", status.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace reduced::server
