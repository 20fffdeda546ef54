// CudaLane::PairSlices: ops about two arrays along axes, of all outputs at once. The device answers them in one read of
// both arrays for each family of ops (pair_folds.h), and adds up as integers the outputs that this leaves open, which
// the host then answers by the CPU engine's formulas.
#include "kernels/cuda/pair_slices.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "kernels/cuda/lane.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/cuda/status.h"
#include "kernels/folds/pair_sums.h"
#include "kernels/folds/term_sums.h"
#include "kernels/system/failpoint.h"
#include "oneapi/tbb/parallel_for.h"

namespace reduced {
namespace {

constexpr PairFamily kPairFamilies[] = {PairFamily::kMeans, PairFamily::kMoments, PairFamily::kDistances};

std::int64_t QuotientUp(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// What is added up for an open output; (x - y)^2 = x^2 - 2 x y + y^2.
std::span<const SumTerm> DigitsOf(Op op) { return TermsOf(op == Op::kDistanceL1 ? op : Op::kCorr); }

double AnswerOf(const OpCall& call, const ReduceSpec& spec, std::int64_t pairs, const PairDigits& digits) {
  TermSums sums(call, spec);
  const auto nans = static_cast<std::int64_t>(digits.nans);
  const bool omits = spec.nan_policy == NanPolicy::kOmit;
  sums.AddCount(TermCount::kElements, omits ? pairs - nans : pairs);
  if (!omits) sums.AddCount(TermCount::kUndefined, nans);
  const std::span<const SumTerm> terms = DigitsOf(call.op), wanted = TermsOf(call.op);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const SumTerm term = terms[i];
    if (std::ranges::find(wanted, term) != wanted.end()) {
      sums.AddDigits(term, 1, digits.digit[i], PairUnit(term));
    } else if (call.op == Op::kDistanceL2 && PairUnit(term) == PairUnit(SumTerm::kXY)) {
      sums.AddDigits(SumTerm::kSquaredDistance, term == SumTerm::kXY ? -2 : 1, digits.digit[i], PairUnit(term));
    }
  }
  return PairSumsAnswer(call.op, sums, spec.ddof);
}

}  // namespace

std::optional<PairArray> PairArrayOf(const Layout& layout, std::span<const Dimension> broadcast) {
  struct Joint {
    std::int64_t size, x, y;
    bool kept;
  };
  // From the innermost, as long as both arrays' dimensions go on.
  std::vector<std::pair<Dimension, bool>> own;
  for (const Dimension& dimension : layout.kept) own.emplace_back(dimension, true);
  for (const Dimension& dimension : layout.reduced) own.emplace_back(dimension, false);
  std::ranges::sort(own, {}, [](const auto& each) { return each.first.stride; });
  std::vector<Dimension> other(broadcast.rbegin(), broadcast.rend());
  if (other.empty()) other.push_back({layout.outputs * layout.elements, 1});
  std::vector<Joint> joint;
  std::size_t at = 0;
  for (const auto& [dimension, kept] : own) {
    std::int64_t left = dimension.size, x = dimension.stride;
    while (left > 1) {
      while (at < other.size() && other[at].size == 1) ++at;
      if (at == other.size()) return std::nullopt;
      const std::int64_t size = std::min(left, other[at].size);
      if (left % size != 0 || other[at].size % size != 0) return std::nullopt;
      joint.push_back({size, x, other[at].stride, kept});
      left /= size;
      x *= size;
      other[at].size /= size;
      other[at].stride *= size;
    }
  }
  PairArray array;
  array.outputs = layout.outputs;
  array.elements = layout.elements;
  for (std::size_t i = joint.size(); i-- > 0;) {
    PairDimensions& to = joint[i].kept ? array.kept : array.reduced;
    if (to.count == PairDimensions::kMost) return std::nullopt;
    to.size[to.count] = joint[i].size;
    to.x[to.count] = joint[i].x;
    to.y[to.count++] = joint[i].y;
  }
  return array;
}

PairPlan PlanPairSlices(const PairArray& array, int element_bytes, int multiprocessors, std::int64_t most_folds) {
  constexpr std::int64_t kThreads = 1024;  // of each multiprocessor, that there should be
  constexpr std::int64_t kTile = 16, kLeastTiles = 4;
  PairPlan plan;
  const PairDimensions& reduced = array.reduced;
  const int last = reduced.count - 1;
  plan.columns = reduced.count == 0 || reduced.x[last] != 1 || reduced.y[last] > 1;
  const auto parts = [&](std::int64_t tiles, std::int64_t lanes) {
    const std::int64_t wanted = QuotientUp(kThreads * multiprocessors, array.outputs * lanes);
    return std::clamp<std::int64_t>(std::min({wanted, tiles / kLeastTiles, most_folds / array.outputs}), 1, 1 << 16);
  };
  if (plan.columns) {
    plan.parts = parts(array.elements / kTile, 1);
    return plan;
  }
  plan.run = reduced.size[last];
  const std::int64_t vector = 16 / element_bytes;
  const auto is_multiple = [&](std::int64_t elements) { return elements == 1 || elements % vector == 0; };
  const auto is_aligned = [](const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; };
  plan.vectors = is_multiple(plan.run) && plan.run > 1 && is_aligned(array.x) && is_aligned(array.y);
  for (const PairDimensions* dimensions : {&array.kept, &array.reduced}) {
    for (int i = 0; i < dimensions->count; ++i) {
      const bool run = dimensions == &reduced && i == last;
      // A y that has one element for a run is read by itself.
      const bool of_y = reduced.y[last] == 0 || dimensions->y[i] % vector == 0;
      plan.vectors = plan.vectors && (run || (dimensions->x[i] % vector == 0 && of_y));
    }
  }
  // Two tiles of a lane, unless there are fewer rows than the device has threads for.
  const std::int64_t device_threads = kThreads * multiprocessors;
  const std::int64_t lanes = array.outputs * 8 >= device_threads ? std::min<std::int64_t>(8, plan.run / (2 * kTile))
                                                                 : std::min<std::int64_t>(32, plan.run / vector);
  plan.lanes = static_cast<int>(std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(lanes, 1))));
  plan.parts = parts(array.elements / plan.run * QuotientUp(plan.run, kTile * plan.lanes), plan.lanes);
  return plan;
}

class CudaLane::PairSlices {
 public:
  // On an error, what is in flight is to be waited for before this goes.
  PairSlices(CudaLane& lane, const Job& job, const std::vector<std::byte*>& answers, CudaArrays& arrays, Timing* timing)
      : lane_(lane), job_(job), answers_(answers), arrays_(arrays), timing_(timing) {}

  absl::Status Run() {
    const absl::StatusOr<const std::byte*> x = lane_.HoldArray(job_, arrays_, &array_, timing_);
    if (!x.ok()) return x.status();
    for (const OtherOperand operand : {OtherOperand::kY, OtherOperand::kWeights}) {
      const std::byte* y = nullptr;
      for (const PairFamily family : kPairFamilies) {
        std::vector<std::size_t> ops;
        for (std::size_t i = 0; i < job_.spec.ops.size(); ++i) {
          const Op op = job_.spec.ops[i].op;
          if (OtherOf(op) == operand && HasPairFamily(op, family)) ops.push_back(i);
        }
        for (std::size_t first = 0; first < ops.size(); first += kMostPairOps) {
          const OtherArray& other = OtherOf(job_, job_.spec.ops[ops[first]].op);
          if (y == nullptr) {
            const absl::StatusOr<const std::byte*> held =
                lane_.HoldOther(job_, other.array, arrays_, &memory_, timing_);
            if (!held.ok()) return held.status();
            y = *held;
          }
          std::optional<PairArray> array = PairArrayOf(job_.partition->layout, other.broadcast);
          if (!array.has_value()) return absl::UnimplementedError("pairs: got more dimensions than a kernel has");
          array->x = *x;
          array->y = y;
          const std::size_t size = std::min<std::size_t>(kMostPairOps, ops.size() - first);
          const absl::Status status = Answer(family, *array, std::span(ops).subspan(first, size));
          if (!status.ok()) return status;
        }
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::byte*> Allocate(std::int64_t bytes) {
    absl::StatusOr<std::unique_ptr<ArrayMemory>> room = arrays_.Allocate(bytes);
    if (!room.ok()) return room.status();
    memory_.push_back(*std::move(room));
    return static_cast<std::byte*>(const_cast<void*>(memory_.back()->array().data));
  }

  // Runs launches, after `cleared` bytes at `from` are set to 0, waits for them, and copies what they leave to the
  // host.
  absl::Status Run(absl::FunctionRef<cudaError_t()> launches, std::byte* from, std::int64_t cleared, std::int64_t bytes,
                   const std::vector<Region>& regions) {
    if (absl::Status why = WhyStop(job_); !why.ok()) return why;
    const StageRange range("reduce pairs along axes");
    Slot& slot = lane_.slots_[kSlots - 1];
    cudaGetLastError();  // launches would report what earlier calls of this thread failed with
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_begin, lane_.kernel_stream_));
    REDUCED_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(from, 0, static_cast<std::size_t>(cleared), lane_.kernel_stream_));
    const cudaError_t error = FAILPOINT("cuda/launch") ? cudaErrorLaunchOutOfResources : launches();
    if (error != cudaSuccess) return DeviceError(error, "launching sums of pairs along axes");
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_end, lane_.kernel_stream_));
    if (absl::Status status = lane_.CopyToHost(job_, from, bytes, regions, timing_); !status.ok()) return status;
    return AddTime(slot.kernel_begin, slot.kernel_end, &Timing::kernel_us, timing_);
  }

  // Answers ops of a family, whose numbers are `ops`.
  absl::Status Answer(PairFamily family, const PairArray& array, std::span<const std::size_t> ops) {
    PairSlicesLaunch launch{.dtype = job_.spec.dtype,
                            .family = family,
                            .question = {.count = array.elements,
                                         .ddof = job_.spec.ddof,
                                         .omit_nan = job_.spec.nan_policy == NanPolicy::kOmit},
                            .array = array,
                            .multiprocessors = lane_.multiprocessors_,
                            .stream = lane_.kernel_stream_};
    constexpr std::int64_t kMostFolds = std::int64_t{1} << 19;
    launch.plan = PlanPairSlices(array, RowOf(job_.spec.dtype).bytes, lane_.multiprocessors_, kMostFolds);
    // Which outputs are open, a bit each; the answers to each op; folds of parts.
    std::vector<std::uint32_t> open(static_cast<std::size_t>(QuotientUp(array.outputs, 32)));
    const auto open_bytes = QuotientUp(std::ssize(open), 64) * 256;
    const std::int64_t answer_bytes = array.outputs * std::int64_t{sizeof(double)};
    const std::int64_t bytes = open_bytes + std::ssize(ops) * answer_bytes;
    const std::int64_t folds = launch.plan.parts == 1 ? 0 : array.outputs * launch.plan.parts * kMostPairFoldBytes;
    const absl::StatusOr<std::byte*> room = Allocate(bytes + folds);
    if (!room.ok()) return room.status();
    std::vector<Region> regions = {
        {0, std::ssize(open) * std::int64_t{sizeof(open[0])}, reinterpret_cast<std::byte*>(open.data())}};
    launch.open = reinterpret_cast<std::uint32_t*>(*room);
    for (const std::size_t op : ops) {
      const std::int64_t begin = open_bytes + launch.ops * answer_bytes;
      launch.op[launch.ops] = job_.spec.ops[op].op;
      launch.answers[launch.ops++] = reinterpret_cast<double*>(*room + begin);
      regions.push_back({begin, answer_bytes, answers_[op]});
    }
    launch.folds = *room + bytes;
    absl::Status status = Run([&] { return LaunchPairSlices(launch); }, *room, open_bytes, bytes, regions);
    if (!status.ok()) return status;
    std::vector<std::int64_t> which;
    for (std::size_t i = 0; i < open.size(); ++i) {
      for (std::uint32_t word = open[i]; word != 0; word &= word - 1) {
        which.push_back(static_cast<std::int64_t>(32 * i) + std::countr_zero(word));
      }
    }
    for (std::size_t i = 0; i < ops.size() && !which.empty() && status.ok(); ++i) {
      // Ops that the same sums answer have these once.
      std::vector<std::size_t> alike;
      for (const std::size_t op : ops) {
        const auto terms = [&](std::size_t number) { return DigitsOf(job_.spec.ops[number].op).data(); };
        if (terms(op) == terms(ops[i])) alike.push_back(op);
      }
      if (alike.front() == ops[i]) status = AnswerOpen(array, alike, which);
    }
    return status;
  }

  // Answers ops that the same sums answer, of some outputs.
  absl::Status AnswerOpen(const PairArray& array, const std::vector<std::size_t>& ops,
                          const std::vector<std::int64_t>& which) {
    constexpr std::int64_t kMost = 768;  // whose digits are 4 MiB
    const std::int64_t batch = std::min<std::int64_t>(std::ssize(which), kMost);
    const std::int64_t digit_bytes = batch * std::int64_t{sizeof(PairDigits)};
    const absl::StatusOr<std::byte*> room = Allocate(digit_bytes + batch * std::int64_t{sizeof(which[0])});
    if (!room.ok()) return room.status();
    PairDigitsLaunch launch{.dtype = job_.spec.dtype,
                            .terms = DigitsOf(job_.spec.ops[ops.front()].op),
                            .array = array,
                            .which = reinterpret_cast<const std::int64_t*>(*room + digit_bytes),
                            .out = reinterpret_cast<PairDigits*>(*room),
                            .multiprocessors = lane_.multiprocessors_,
                            .stream = lane_.kernel_stream_};
    std::vector<PairDigits> digits(static_cast<std::size_t>(batch));
    for (std::int64_t first = 0; first < std::ssize(which); first += batch) {
      launch.count = std::min(batch, std::ssize(which) - first);
      const std::int64_t* const listed = which.data() + first;
      const std::int64_t bytes = launch.count * std::int64_t{sizeof(PairDigits)};
      const auto launches = [&] {
        const cudaError_t error =
            cudaMemcpyAsync(*room + digit_bytes, listed, static_cast<std::size_t>(launch.count) * sizeof(*listed),
                            cudaMemcpyHostToDevice, lane_.kernel_stream_);
        return error == cudaSuccess ? LaunchPairDigits(launch) : error;
      };
      const absl::Status status =
          Run(launches, *room, bytes, bytes, {{0, bytes, reinterpret_cast<std::byte*>(digits.data())}});
      if (!status.ok()) return status;
      if (std::any_of(digits.begin(), digits.begin() + launch.count,
                      [](const PairDigits& each) { return each.infinities > 0; })) {
        return absl::UnimplementedError("pairs: got infinities; allowed: finite elements, NaN");
      }
      lane_.copiers_.execute([&] {
        tbb::parallel_for(std::int64_t{0}, launch.count, [&](std::int64_t i) {
          for (const std::size_t op : ops) {
            const double answer =
                AnswerOf(job_.spec.ops[op], job_.spec, array.elements, digits[static_cast<std::size_t>(i)]);
            std::memcpy(answers_[op] + listed[i] * std::int64_t{sizeof(answer)}, &answer, sizeof(answer));
          }
        });
      });
    }
    return absl::OkStatus();
  }

  CudaLane& lane_;
  const Job& job_;
  const std::vector<std::byte*>& answers_;  // of each op
  CudaArrays& arrays_;
  Timing* const timing_;
  std::unique_ptr<ArrayMemory> array_;                // x, if it was not there
  std::vector<std::unique_ptr<ArrayMemory>> memory_;  // y likewise; of launches that may be in flight
};

bool CudaLane::AnswersPairsAlongAxes(const Job& job, const OpCall& call, bool one_by_one) {
  const Layout& layout = job.partition->layout;
  const auto has = [&](PairFamily family) { return HasPairFamily(call.op, family); };
  if (!std::ranges::any_of(kPairFamilies, has) || !HasKernels(job.spec.dtype) || !RowOf(job.spec.dtype).is_float ||
      !job.partition->uniform() || layout.outputs == 0 || layout.elements == 0 ||
      layout.elements > PairDigits::kMostPairs) {
    return false;
  }
  const OtherArray& other = OtherOf(job, call.op);
  return other.array.dtype == job.spec.dtype && !(one_by_one && other.broadcast.empty());
}

absl::Status CudaLane::ReducePairsAlongAxes(const Job& job, CudaArrays& arrays, Timing* timing) {
  const absl::StatusOr<std::vector<std::byte*>> answers =
      job.place(job.partition->layout.outputs, /*groups=*/1, /*keys=*/nullptr);
  if (!answers.ok()) return answers.status();
  PairSlices slices(*this, job, *answers, arrays, timing);
  const absl::Status status = slices.Run();
  if (!status.ok()) Abandon();  // what is in flight uses memory of the reduction
  return status;
}

}  // namespace reduced
