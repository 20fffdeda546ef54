#include "kernels/cpu/engine.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cpu/arrays.h"
#include "kernels/cpu/distributions.h"
#include "kernels/cpu/folding.h"
#include "kernels/cpu/for_ranges.h"
#include "kernels/cpu/groups.h"
#include "kernels/cpu/quick_answers.h"
#include "kernels/cpu/read_all.h"
#include "kernels/cpu/slices.h"
#include "kernels/cpu/tiles.h"
#include "kernels/engine/array_budget.h"
#include "kernels/engine/lanes.h"
#include "kernels/engine/one_output.h"
#include "kernels/engine/pipelines.h"
#include "kernels/engine/stopwatch.h"
#include "kernels/exact/answers.h"
#include "kernels/ladder/host_rungs.h"
#include "kernels/matmul/host.h"
#include "kernels/system/failpoint.h"
#include "oneapi/tbb/blocked_range.h"
#include "oneapi/tbb/global_control.h"
#include "oneapi/tbb/info.h"
#include "oneapi/tbb/parallel_for.h"
#include "oneapi/tbb/parallel_reduce.h"
#include "oneapi/tbb/task_arena.h"

namespace reduced {
namespace {

// Up to here the calling thread reduces the array. A hand-off to a lane costs some 10 us, in which one thread reduces
// this much and more (bench_cpu --sizes); beyond it the caller, often a thread that has events to serve, is kept too
// long by the slower ops.
constexpr std::int64_t kInlineBytes = kBlockBytes;
// The same of an array with so many outputs, each of which may take a microsecond or so besides its elements.
constexpr std::int64_t kInlineOutputs = 64;
// What the queue expects each output to take besides its elements, with several threads at work; and each group that is
// answered side by side with others (quick_answers.h).
constexpr double kOutputUs = 0.3;
constexpr double kQuickGroupUs = 0.02;
// What each row takes besides for its key: one that is given, and one that is to be found. At most: a table that has no
// room in a cache, or sorting the rows, twice for keys that are far apart.
constexpr double kGivenKeyUs = 0.003, kMostGivenKeyUs = 0.03;
constexpr double kFoundKeyUs = 0.01, kMostFoundKeyUs = 0.3;

// Folds elements [first, first + count), at most kBlockBytes of them, wherever they are.
absl::Status FoldBlock(const Job& job, const Plan& plan, std::int64_t first, std::int64_t count, Folded* into) {
  const std::int64_t width = RowOf(job.spec.dtype).bytes;
  if (!IsCopied(job.array)) {
    FoldElements(plan, static_cast<const std::byte*>(job.array.data) + first * width, first, count, into);
    return absl::OkStatus();
  }
  thread_local std::unique_ptr<std::byte[]> buffer;
  if (buffer == nullptr) buffer.reset(new (std::nothrow) std::byte[kBlockBytes]);
  if (buffer == nullptr || FAILPOINT("cpu/block_buffer")) {
    return absl::ResourceExhaustedError(
        absl::StrFormat("the server has no memory to read %d bytes of the array into", kBlockBytes));
  }
  const absl::Status status = CopyElements(job.array, first * width, count * width, buffer.get());
  if (status.ok()) FoldElements(plan, buffer.get(), first, count, into);
  return status;
}

absl::Status NotHostMemory() {
  return absl::FailedPreconditionError(
      "array: got one in the memory of a CUDA device; allowed: in host memory, for the CPU engine");
}

// Whether a job takes less time than to hand it to a lane.
bool IsInline(const Job& job) {
  if (MayBlock(job.array) || job.spec.count > kInlineBytes / RowOf(job.spec.dtype).bytes) return false;
  if (!AnsweredByAccumulators(job.spec)) return false;
  if (job.partition.has_value()) {
    return job.partition->uniform() && job.partition->layout.outputs <= kInlineOutputs && !IsCopied(job.array);
  }
  return job.spec.pipeline.empty() || !FindPipeline(job.spec.pipeline)->rung;
}

// On the calling thread, what IsInline; the state is that of a whole array.
absl::StatusOr<State> ReduceHere(const Job& job) {
  if (job.partition.has_value()) {
    const absl::Status status = ReduceSlices(job, static_cast<const std::byte*>(job.array.data), /*arena=*/nullptr);
    if (!status.ok()) return status;
    return State();
  }
  const Plan plan(job.spec);
  State state;
  Folded folded(job.spec, plan, &state.partial);
  const absl::Status status = FoldBlock(job, plan, 0, job.spec.count, &folded);
  if (!status.ok()) return status;
  if (folded.exact.has_value()) state.exact = std::make_unique<ExactSums>(folded.exact->sums());
  state.partial.count = job.spec.count;
  return state;
}

// On the threads of the arena. Blocks are folded in any order; their partials are combined in a tree whose shape
// depends on their number only, their exact sums as the tasks end.
absl::StatusOr<State> ReduceInArena(const Job& job, tbb::task_arena& arena) {
  const std::int64_t count = job.spec.count;
  const std::int64_t block = kBlockBytes / RowOf(job.spec.dtype).bytes;
  const Plan plan(job.spec);
  std::atomic<bool> stop = false;
  absl::Mutex mutex;
  absl::Status why;  // the first to say stop
  tbb::task_group_context tasks;
  State state;
  if (plan.exact_accumulators != 0) state.exact = std::make_unique<ExactSums>();
  const auto fold = [&](const tbb::blocked_range<std::int64_t>& blocks, Partial partial) {
    Folded folded(job.spec, plan, &partial);
    for (std::int64_t b = blocks.begin(); b != blocks.end() && !stop.load(std::memory_order_relaxed); ++b) {
      absl::Status status = WhyStop(job);
      if (status.ok()) status = FoldBlock(job, plan, b * block, std::min(block, count - b * block), &folded);
      if (status.ok()) continue;
      stop.store(true, std::memory_order_relaxed);
      tasks.cancel_group_execution();  // those that haven't begun: of a large array, millions
      const absl::MutexLock lock(&mutex);
      why.Update(status);
    }
    if (folded.exact.has_value()) {
      const absl::MutexLock lock(&mutex);
      Merge(folded.exact->sums(), state.exact.get());
    }
    return partial;
  };
  const auto combine = [](Partial earlier, const Partial& later) {
    Combine(later, &earlier);
    return earlier;
  };
  state.partial = arena.execute(
      [&] { return tbb::parallel_deterministic_reduce(BlocksOf(job.spec), Partial(), fold, combine, tasks); });
  if (!why.ok()) return why;
  state.partial.count = count;
  return state;
}

Answer AnswerOf(State state, double kernel_us) {
  Answer answer{.state = std::move(state),
                .ran = {EngineKind::kCpu, "cpu", std::string(DefaultPipeline(EngineKind::kCpu).name)}};
  answer.timing.kernel_us = kernel_us;
  return answer;
}

absl::Status NeedsMemory(std::string_view pipeline, const absl::Status& why) {
  if (!absl::IsResourceExhausted(why)) return why;
  return absl::ResourceExhaustedError(
      absl::StrFormat("pipeline %s needs memory of its own for this array: %s", pipeline, std::string(why.message())));
}

// Memory that a rung needs beside the array: counted as an array's would be, so that no request can take all there is.
absl::StatusOr<std::unique_ptr<ArrayMemory>> MemoryFor(std::string_view pipeline, std::int64_t bytes,
                                                       ArrayBudget& budget) {
  absl::StatusOr<std::unique_ptr<ArrayMemory>> memory = AllocateCpuArray(bytes, budget);
  if (memory.ok()) return memory;
  return NeedsMemory(pipeline, memory.status());
}

// Where the elements of the whole array are in memory. One that IsCopied is copied into memory of the budget, which
// `memory` gets, by the threads of the arena.
absl::StatusOr<const std::byte*> WholeInMemory(const Job& job, tbb::task_arena& arena, ArrayBudget& budget,
                                               std::unique_ptr<ArrayMemory>* memory) {
  if (!IsCopied(job.array)) return static_cast<const std::byte*>(job.array.data);
  const std::int64_t bytes = job.spec.count * RowOf(job.spec.dtype).bytes;
  absl::StatusOr<std::unique_ptr<ArrayMemory>> allocated = AllocateCpuArray(bytes, budget, job.caller);
  if (!allocated.ok()) return allocated.status();
  *memory = *std::move(allocated);
  auto* const to = static_cast<std::byte*>(const_cast<void*>((*memory)->array().data));
  const absl::Status status = ForAll((bytes + kBlockBytes - 1) / kBlockBytes, arena, [&](std::int64_t block) {
    const std::int64_t begin = block * kBlockBytes;
    const absl::Status why = WhyStop(job);
    return why.ok() ? CopyElements(job.array, begin, std::min(kBlockBytes, bytes - begin), to + begin) : why;
  });
  if (!status.ok()) return status;
  return to;
}

// By a rung of the ladder, on the calling thread.
absl::StatusOr<Answer> ReduceByRung(const Job& job, const PipelineRow& row, tbb::task_arena& arena,
                                    ArrayBudget& budget) {
  if (const absl::Status why = WhyStop(job); !why.ok()) return why;
  const HostRung& rung = *row.host;
  Answer result;
  result.ran = {EngineKind::kCpu, "cpu", std::string(row.name)};
  std::unique_ptr<ArrayMemory> copied;
  const absl::StatusOr<const std::byte*> in_memory = WholeInMemory(job, arena, budget, &copied);
  if (!in_memory.ok()) return NeedsMemory(row.name, in_memory.status());
  const void* const data = *in_memory;
  const auto stop = [&job] { return !WhyStop(job).ok(); };
  std::unique_ptr<ArrayMemory> scratch;
  void* scratch_data = nullptr;
  if (rung.prepare != nullptr) {
    absl::StatusOr<std::unique_ptr<ArrayMemory>> memory =
        MemoryFor(row.name, static_cast<std::int64_t>(rung.scratch_bytes(job.spec)), budget);
    if (!memory.ok()) return memory.status();
    scratch = *std::move(memory);
    scratch_data = const_cast<void*>(scratch->array().data);
    const Stopwatch since_start;
    rung.prepare(job.spec, data, scratch_data, stop);
    result.timing.scratch_copy_us = since_start.micros();
    if (const absl::Status why = WhyStop(job); !why.ok()) return why;
  }
  const Stopwatch since_start;
  result.state = rung.reduce(job.spec, data, scratch_data, kLongestStretch, stop);
  result.timing.kernel_us = since_start.micros();
  if (const absl::Status why = WhyStop(job); !why.ok()) return why;
  return result;
}

// The outputs of a partition.
absl::StatusOr<Answer> ReducePartition(const Job& job, tbb::task_arena& arena, ArrayBudget& budget) {
  std::unique_ptr<ArrayMemory> copied;
  const absl::StatusOr<const std::byte*> in_memory = WholeInMemory(job, arena, budget, &copied);
  if (!in_memory.ok()) return in_memory.status();
  const std::byte* const data = *in_memory;
  const Stopwatch since_start;
  const auto why_stop = [&job] { return WhyStop(job); };
  const GroupingContext context{budget, arena, why_stop, /*lazily=*/true};
  absl::StatusOr<LoadedPartition> loaded = LoadPartition(job, data, context);
  if (!loaded.ok()) return loaded.status();
  const auto by_accumulators = [&](const Job& some) {
    return some.partition->uniform() ? ReduceSlices(some, data, &arena) : ReduceGroups(some, data, context, &*loaded);
  };
  const absl::Status status = AnsweredByAccumulators(job.spec)
                                  ? by_accumulators(job)
                                  : ReduceDistributions(job, context, &*loaded, by_accumulators);
  if (!status.ok()) return status;
  return AnswerOf({}, since_start.micros());
}

// On a lane, whatever the partition and the pipeline. Its queue_us is not set.
absl::StatusOr<Answer> ReduceOnLane(const Job& job, tbb::task_arena& arena, ArrayBudget& budget) {
  if (job.partition.has_value()) return ReducePartition(job, arena, budget);
  if (!AnsweredByAccumulators(job.spec)) {
    return ReduceAsOneOutput(job, [&](const Job& one) { return ReducePartition(one, arena, budget); });
  }
  const PipelineRow* const row = job.spec.pipeline.empty() ? nullptr : FindPipeline(job.spec.pipeline);
  if (row != nullptr && row->rung) return ReduceByRung(job, *row, arena, budget);
  const Stopwatch since_start;
  absl::StatusOr<State> state = ReduceInArena(job, arena);
  if (!state.ok()) return state.status();
  return AnswerOf(*std::move(state), since_start.micros());
}

// How long the threads of the arena take to read the array, which is in memory, in the tasks that a reduction has.
absl::StatusOr<double> ReadMicros(const Job& job, tbb::task_arena& arena, int way) {
  const auto* const data = static_cast<const std::byte*>(job.array.data);
  const std::int64_t bytes = job.spec.count * RowOf(job.spec.dtype).bytes;
  std::atomic<std::uint64_t> seen = 0;
  tbb::task_group_context tasks;
  const auto read = [&](const tbb::blocked_range<std::int64_t>& blocks) {
    if (!WhyStop(job).ok()) tasks.cancel_group_execution();
    const std::int64_t begin = blocks.begin() * kBlockBytes;
    seen |= ReadAll(data + begin, std::min(blocks.end() * kBlockBytes, bytes) - begin, way);
  };
  const Stopwatch since_start;
  arena.execute([&] { tbb::parallel_for(BlocksOf(job.spec), read, tbb::simple_partitioner(), tasks); });
  const double micros = since_start.micros();
  if (const absl::Status why = WhyStop(job); !why.ok()) return why;
  return micros;
}

absl::StatusOr<Measurement> MeasureOnLane(const Job& job, int repeats, tbb::task_arena& arena, ArrayBudget& budget) {
  Measurement measurement;
  double scratch_copy_us = 0;
  double read_us = std::numeric_limits<double>::max();
  for (int i = -1; i < repeats; ++i) {
    if (!IsCopied(job.array)) {
      const absl::StatusOr<double> micros = ReadMicros(job, arena, (i + 1) % kReadWays);
      if (!micros.ok()) return micros.status();
      read_us = std::min(read_us, *micros);
    }
    absl::StatusOr<Answer> result = ReduceOnLane(job, arena, budget);
    if (!result.ok()) return result.status();
    if (i < 0) {  // the one before the first
      measurement.ran = result->ran;
      continue;
    }
    measurement.kernel_us.push_back(*result->timing.kernel_us);
    measurement.states.push_back(std::move(result->state));
    if (result->timing.scratch_copy_us) {
      scratch_copy_us += *result->timing.scratch_copy_us;
      measurement.scratch_copy_us = scratch_copy_us / (i + 1);
    }
  }
  const std::int64_t bytes = job.spec.count * RowOf(job.spec.dtype).bytes;
  const PipelineRow* const row = FindPipeline(measurement.ran.pipeline);
  const bool copies = row != nullptr && row->rung && row->host->scratch_bytes != nullptr;
  measurement.read_bytes = copies ? static_cast<std::int64_t>(row->host->scratch_bytes(job.spec)) : bytes;
  if (!IsCopied(job.array)) measurement.read_gb_per_s = static_cast<double>(bytes) / (read_us * 1e3);
  return measurement;
}

absl::StatusOr<MatmulMeasurement> MeasureMatmulOnLane(MatmulJob job, int repeats, ArrayBudget& budget) {
  constexpr double kMostUs = 5e6;  // of all repeats together
  const std::string_view name = job.spec.row->name;
  absl::StatusOr<std::unique_ptr<ArrayMemory>> transposed = MemoryFor(name, job.spec.bytes_b(), budget);
  if (!transposed.ok()) return transposed.status();
  MatmulMeasurement measurement{.ran = {EngineKind::kCpu, "cpu", std::string(name)}};
  MatmulVerdict verdict;
  const Stopwatch since_start;
  for (int i = 0; i < repeats && (i == 0 || since_start.micros() < kMostUs); ++i) {
    const Stopwatch since_repeat;
    MultiplyOnHost(job.spec, job.a, job.b, const_cast<void*>((*transposed)->array().data), job.c,
                   [&job] { return !WhyStop(job).ok(); });
    measurement.kernel_us.push_back(since_repeat.micros());
    if (const absl::Status why = WhyStop(job); !why.ok()) return why;
    verdict.Look(job, &measurement);
    if (const absl::Status why = WhyStop(job); !why.ok()) return why;
  }
  return measurement;
}

// What a partition adds to the time that an array takes to be read.
void AddPartition(const Job& job, Lanes::Ticket* ticket) {
  const Partition& partition = *job.partition;
  const bool quick = !partition.uniform() && job.states == nullptr && QuickAnswers::For(job.spec).has_value();
  const std::int64_t outputs = partition.groups() * partition.layout.outputs;  // as many as are known of beforehand
  ticket->expected_us += (quick ? kQuickGroupUs : kOutputUs) * static_cast<double>(outputs);
  if (!partition.keys.has_value()) return;
  const bool given = partition.keys->groups > 0;
  const auto rows = static_cast<double>(partition.rows);
  ticket->most_us = ticket->expected_us + (given ? kMostGivenKeyUs : kMostFoundKeyUs) * rows;
  ticket->expected_us += (given ? kGivenKeyUs : kFoundKeyUs) * rows;
}

std::string ModelName() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const std::size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// ThreadSanitizer does not see how oneTBB hands its tasks over, and takes each for a race: under it, lanes work alone.
// It would also take a second to calibrate an engine as elsewhere.
#ifdef __SANITIZE_THREAD__
constexpr bool kLanesWorkAlone = true;
constexpr std::int64_t kCalibrationBytes = 1 << 20;
#else
constexpr bool kLanesWorkAlone = false;
constexpr std::int64_t kCalibrationBytes = 48 << 20;
#endif

// The lane that a thread holds in CpuEngine::OnLane; no engine: it holds none.
struct HeldLane {
  const Engine* engine = nullptr;
  int lane = 0;
};
thread_local HeldLane held_lane;

class CpuEngine final : public Engine {
 public:
  explicit CpuEngine(const EngineOptions& options)
      : threads_(options.cpu_threads > 0 ? options.cpu_threads : tbb::info::default_concurrency()),
        parallelism_(tbb::global_control::max_allowed_parallelism,
                     static_cast<std::size_t>(std::max(threads_, tbb::info::default_concurrency()))),
        arenas_(options.cpu_lanes),
        model_(ModelName()),
        budget_("cpu", options.cpu_array_bytes, options.memory),
        scratch_("cpu", std::numeric_limits<std::int64_t>::max(), options.memory),
        lanes_(options.cpu_lanes, options.queue_limit, options.queue_target) {
    for (auto& arena : arenas_) arena = std::make_unique<tbb::task_arena>(kLanesWorkAlone ? 1 : threads_);
    Calibrate();
    work_.Clear();
  }

  EngineKind kind() const override { return EngineKind::kCpu; }

  DeviceInfo info() const override {
    return {.name = "cpu",
            .model = model_,
            .memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE),
            .parallel_units = threads_,
            .details = absl::StrCat("vectors: ", VectorTargetName()),
            .lanes = lanes_.count(),
            .lanes_busy = lanes_.busy(),
            .queue_limit = lanes_.queue_limit(),
            .queue_length = lanes_.queue_length(),
            .array_bytes = budget_.taken(),
            .array_bytes_limit = budget_.limit(),
            .reductions = work_.reductions(),
            .reduced_bytes = work_.bytes()};
  }

  Calibration calibration() const override { return calibration_; }
  absl::Status CheckRoom(std::uint64_t caller, absl::Time deadline) const override {
    return lanes_.CheckRoom(caller, deadline);
  }
  double waiting_us(std::int64_t bytes) const override { return bytes <= kInlineBytes ? 0 : lanes_.waiting_us(); }

  void Reduce(Job job, Done done) override {
    const Stopwatch since_call;
    if (job.array.space == MemorySpace::kDevice) return std::move(done)(NotHostMemory());
    if (job.partition.has_value()) {
      if (absl::Status sides = CheckSides(job, kNoDevice, "cpu"); !sides.ok()) {
        return std::move(done)(std::move(sides));
      }
    }
    if (const absl::Status why = WhyStop(job); !why.ok()) return std::move(done)(why);
    if (IsInline(job)) {
      absl::StatusOr<State> state = ReduceHere(job);
      if (!state.ok()) return std::move(done)(state.status());
      work_.Add(job.spec);
      return std::move(done)(AnswerOf(*std::move(state), since_call.micros()));
    }
    if (held_lane.engine == this) {
      job.limit.Start();
      return std::move(done)(Counted(job, ReduceOnLane(job, *arenas_[held_lane.lane], scratch_)));
    }
    Lanes::Ticket ticket = TicketOf(job, calibration_);
    if (job.partition.has_value()) AddPartition(job, &ticket);
    lanes_.Submit(
        [this, since_call, job = std::move(job), done = std::move(done)](absl::StatusOr<int> lane) mutable {
          if (!lane.ok()) return std::move(done)(lane.status());
          job.limit.Start();
          const double queue_us = since_call.micros();
          absl::StatusOr<Answer> answer = Counted(job, ReduceOnLane(job, *arenas_[*lane], scratch_));
          if (answer.ok()) answer->timing.queue_us = queue_us;
          std::move(done)(std::move(answer));
        },
        std::move(ticket));
  }

  void OnLane(const Job& all, Work work) override {
    lanes_.Submit(
        [this, work = std::move(work)](absl::StatusOr<int> lane) mutable {
          if (lane.ok()) held_lane = {this, *lane};
          std::move(work)(lane.status());
          held_lane = {};
        },
        TicketOf(all, calibration_));
  }

  void Measure(Job job, int repeats, Measured done) override {
    Lanes::Ticket ticket = TicketOf(job, calibration_, repeats + 1);
    lanes_.Submit(
        [this, job = std::move(job), repeats, done = std::move(done)](absl::StatusOr<int> lane) mutable {
          if (!lane.ok()) return std::move(done)(lane.status());
          job.limit.Start();
          std::move(done)(MeasureOnLane(job, repeats, *arenas_[*lane], scratch_));
        },
        std::move(ticket));
  }

  void MeasureMatmul(MatmulJob job, int repeats, MatmulMeasured done) override {
    Lanes::Ticket ticket = TicketOf(job);
    lanes_.Submit(
        [this, job = std::move(job), repeats, done = std::move(done)](absl::StatusOr<int> lane) mutable {
          if (!lane.ok()) return std::move(done)(lane.status());
          job.limit.Start();
          std::move(done)(MeasureMatmulOnLane(std::move(job), repeats, scratch_));
        },
        std::move(ticket));
  }

  absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t bytes, std::uint64_t caller) override {
    return AllocateCpuArray(bytes, budget_, caller);
  }

 private:
  absl::StatusOr<Answer> Counted(const Job& job, absl::StatusOr<Answer> answer) {
    if (answer.ok()) work_.Add(job.spec);
    return answer;
  }

  // The best of a few runs each: other processes only ever make a run slower.
  void Calibrate() {
    const float few[256] = {};
    double fixed_us = 1e3;
    for (int run = 0; run < 32; ++run) {
      const Stopwatch stopwatch;
      Reduce({.spec = SumOfFloats(std::size(few)), .array = {few}}, [](absl::StatusOr<Answer>) {});
      fixed_us = std::min(fixed_us, stopwatch.micros());
    }
    calibration_ = {fixed_us, /*host_gb_per_s=*/1, /*held_gb_per_s=*/1};

    // From memory, not from the cache. In huge pages where they can be had: writing the array takes most of the time.
    constexpr std::int64_t kBytes = kCalibrationBytes;
    void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    madvise(memory, kBytes, MADV_HUGEPAGE);
    std::fill_n(static_cast<float*>(memory), kBytes / sizeof(float), 1.0F);
    const Job job{.spec = SumOfFloats(kBytes / sizeof(float)), .array = {memory}};
    for (int run = 0; run < 3; ++run) {
      const Stopwatch stopwatch;
      if (!ReduceInArena(job, *arenas_.front()).ok()) break;
      calibration_.host_gb_per_s = std::max(calibration_.host_gb_per_s, kBytes / (stopwatch.micros() * 1e3));
    }
    calibration_.held_gb_per_s = calibration_.host_gb_per_s;
    munmap(memory, kBytes);
  }

  // As requests have it by default.
  static ReduceSpec SumOfFloats(std::int64_t count) {
    return {.dtype = DType::kF32, .count = count, .ops = {Op::kSum}, .precision = Precision::kExact};
  }

  const int threads_;
  const tbb::global_control parallelism_;  // lets there be more threads than cores, if that was asked for
  std::vector<std::unique_ptr<tbb::task_arena>> arenas_;  // by lane
  const std::string model_;
  ArrayBudget budget_;   // of arrays
  ArrayBudget scratch_;  // of what rungs need
  Calibration calibration_;
  WorkCount work_;
  Lanes lanes_;  // last: its threads use the rest
};

}  // namespace

std::unique_ptr<Engine> MakeCpuEngine(const EngineOptions& options) { return std::make_unique<CpuEngine>(options); }

}  // namespace reduced
