// CudaLane::ReduceTogether: many arrays in device memory, by a launch for all of those that the same kernel reduces.
//
// Arrays are cut into pieces such that all blocks have about as much to read. What a block finds of each piece it
// writes to pinned memory of the host, which puts the pieces of each array together by the operations of states.
#include "kernels/cuda/many_arrays.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/cpu/for_ranges.h"
#include "kernels/cuda/fingerprint.h"
#include "kernels/cuda/lane.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/cuda/status.h"
#include "kernels/engine/output_errors.h"
#include "kernels/exact/answers.h"
#include "kernels/folds/fingerprint.h"
#include "kernels/folds/fold.h"
#include "kernels/system/failpoint.h"

namespace reduced {
namespace {

constexpr int kBlocksOfMultiprocessor = 2;
constexpr std::int64_t kPieceCostBytes = std::int64_t{32} << 10;   // what a piece takes besides its bytes, in the time
constexpr std::int64_t kLeastShareBytes = std::int64_t{64} << 10;  // of a block
// Of a piece, so that its vectors lie as those of its array. Whole elements.
constexpr std::int64_t kCutBytes = 4 << 10;
constexpr std::int64_t kMostLaunchBytes = std::int64_t{16} << 30;  // between looks whether the answer is still wanted

enum class Kernels { kSums, kFolds, kFingerprints };

// Ops of a job that one launch answers.
struct Question {
  std::size_t job = 0;
  Kernels kernels = Kernels::kSums;
  const ReduceSpec* spec = nullptr;  // with these ops alone
  std::vector<std::size_t> ops{};    // which these are among the job's; none: they are all of them

  // Questions with the same of these go in one launch: kernels of fingerprints know words only.
  using Key = std::pair<Kernels, int>;
  Key key() const { return {kernels, kernels == Kernels::kFingerprints ? width() : static_cast<int>(spec->dtype)}; }
  // Of what the kernels take for an element: bytes, and how many there are.
  int width() const {
    return RowOf(spec->dtype).bytes / (kernels == Kernels::kFingerprints ? WordsOfElement(spec->dtype) : 1);
  }
  std::int64_t count() const { return bytes() / width(); }
  std::int64_t bytes() const { return spec->count * RowOf(spec->dtype).bytes; }
};

// Whether there are kernels of many arrays for ops that accumulators answer; if so, which.
bool HasKernelsFor(const ReduceSpec& spec, Kernels* kernels) {
  const AccumulatorSet exact = ExactAccumulatorsFor(spec), others = AccumulatorsFor(spec);
  *kernels = exact != 0 ? Kernels::kSums : Kernels::kFolds;
  return HasKernels(spec.dtype) && (exact != 0 ? HaveManySums(exact, others) : HaveManyFolds(spec.dtype, others));
}

// Calls ask(question) for the questions that make up a job; for none, if it is to be reduced alone. `specs` gets those
// that are not the job's.
void ForQuestions(const Job& job, std::size_t index, std::deque<ReduceSpec>* specs,
                  absl::FunctionRef<void(Question)> ask) {
  const ReduceSpec& spec = job.spec;
  const auto address = reinterpret_cast<std::uintptr_t>(job.array.data);
  const bool in_place = job.array.space == MemorySpace::kDevice && address % RowOf(spec.dtype).bytes == 0;
  if (!in_place || job.array.strided != nullptr || spec.count == 0 || !spec.pipeline.empty()) return;
  Question folds{.job = index, .spec = &spec};
  if (!job.partition.has_value()) {
    if (AnsweredByAccumulators(spec) && HasKernelsFor(spec, &folds.kernels)) ask(std::move(folds));
    return;
  }
  const Layout& layout = job.partition->layout;
  if (!job.partition->uniform() || layout.outputs != 1 || layout.run() < layout.elements) return;
  Question fingerprints{.job = index, .kernels = Kernels::kFingerprints, .spec = &spec};
  for (std::size_t i = 0; i < spec.ops.size(); ++i) {
    const OpCall& call = spec.ops[i];
    const bool whole = call.op == Op::kFingerprint && !call.given().shard.has_value();
    if (!whole && !HasAccumulator(call)) return;
    (whole ? fingerprints : folds).ops.push_back(i);
  }
  if (folds.ops.empty() && spec.ops.size() == 1) {
    fingerprints.ops.clear();
    return ask(std::move(fingerprints));
  }
  if (job.states != nullptr || folds.ops.empty() || fingerprints.ops.empty()) return;
  for (Question* const each : {&folds, &fingerprints}) {
    ReduceSpec& some = specs->emplace_back(spec);
    some.ops.clear();
    for (const std::size_t op : each->ops) some.ops.push_back(spec.ops[op]);
    each->spec = &some;
  }
  if (!HasKernelsFor(*folds.spec, &folds.kernels)) return;
  ask(std::move(folds));
  ask(std::move(fingerprints));
}

}  // namespace

class CudaLane::ManyArrays {
 public:
  ManyArrays(CudaLane& lane, std::vector<Job>& jobs, std::vector<Answer>* answers, std::vector<char>* answered)
      : lane_(lane), jobs_(jobs), answers_(*answers), answered_(*answered), places_(jobs.size()) {}

  // As CudaLane::ReduceTogether.
  absl::Status Run(std::size_t* failed) {
    std::map<Question::Key, std::vector<Question>> launches;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      ForQuestions(jobs_[i], i, &specs_,
                   [&](Question question) { launches[question.key()].push_back(std::move(question)); });
    }
    for (auto& [which, questions] : launches) {
      for (auto next = questions.begin(); next != questions.end();) {
        const auto end = EndOfBatch(next, questions.end());
        if (absl::Status status = Reduce({next, end}, failed); !status.ok()) return status;
        next = end;
      }
    }
    return absl::OkStatus();
  }

 private:
  using Questions = std::span<Question>;
  struct Plan {
    std::vector<ManyPiece> pieces;
    std::vector<std::size_t> ends;  // of each question's pieces
    std::vector<unsigned> first;    // as ManyPieces::first
  };

  // Of what a piece leaves, and its own.
  static std::int64_t PieceBytes(const Question& question) {
    constexpr std::int64_t kOwn = sizeof(ManyPiece) + sizeof(unsigned);
    switch (question.kernels) {
      case Kernels::kSums:
        return kOwn + sizeof(Partial) + sizeof(ExactDigits);
      case Kernels::kFolds:
        return kOwn + sizeof(Partial);
      case Kernels::kFingerprints:
        return kOwn + sizeof(Residues);
    }
    __builtin_unreachable();
  }
  // How many pieces a launch may have, and how many blocks.
  std::int64_t Room(const Question& question) const { return lane_.chunk_bytes_ / PieceBytes(question) - 1; }
  std::int64_t MostBlocks(const Question& question) const {
    return std::clamp<std::int64_t>(Room(question) / 2, 1, kBlocksOfMultiprocessor * lane_.multiprocessors_);
  }

  // So many as have room, and at least one.
  std::vector<Question>::iterator EndOfBatch(std::vector<Question>::iterator next,
                                             std::vector<Question>::iterator end) const {
    // Blocks that end within an array cut it once more.
    std::int64_t room = Room(*next) - MostBlocks(*next), bytes = kMostLaunchBytes;
    const auto pieces = [](const Question& each) { return 1 + each.count() / kMaxLaunchElements; };
    do {
      room -= pieces(*next);
      bytes -= next->bytes();
      ++next;
    } while (next != end && room >= pieces(*next) && bytes > 0);
    return next;
  }

  Plan PlanOf(Questions questions) const {
    Plan plan;
    double left = 0;
    for (const Question& each : questions) left += static_cast<double>(each.bytes() + kPieceCostBytes);
    const auto most = static_cast<std::int64_t>(left / kLeastShareBytes);
    std::int64_t blocks = std::clamp<std::int64_t>(most, 1, MostBlocks(questions[0]));
    left += static_cast<double>(blocks * kPieceCostBytes);
    double room = 0;  // of the block
    for (const Question& each : questions) {
      const std::int64_t width = each.width(), count = each.count();
      const auto* const data = static_cast<const std::byte*>(jobs_[each.job].array.data);
      for (std::int64_t begin = 0; begin < count;) {
        if (room < static_cast<double>(2 * kPieceCostBytes) && blocks > 0) {  // too little for a piece
          plan.first.push_back(static_cast<unsigned>(plan.pieces.size()));
          room = left / static_cast<double>(blocks--);
        }
        const auto rest = static_cast<double>((count - begin) * width);
        std::int64_t take = std::min(count - begin, kMaxLaunchElements);
        if (rest > room && blocks > 0) {
          const auto bytes = std::max(static_cast<std::int64_t>(room) - kPieceCostBytes, kCutBytes);
          take = std::min(take, bytes / kCutBytes * kCutBytes / width);
        }
        plan.pieces.push_back({data + begin * width, take, begin});
        const double cost = static_cast<double>(take * width + kPieceCostBytes);
        room -= cost;
        left -= cost;
        begin += take;
      }
      plan.ends.push_back(plan.pieces.size());
    }
    plan.first.push_back(static_cast<unsigned>(plan.pieces.size()));
    return plan;
  }

  absl::Status Reduce(Questions questions, std::size_t* failed) {
    *failed = questions[0].job;
    for (const Question& each : questions) {
      const Job& job = jobs_[each.job];
      absl::Status status = job.array.ready == ready_ ? absl::OkStatus() : AwaitReady(job);
      if (status.ok() && &each == questions.data()) status = WhyStop(job);
      if (!status.ok()) {
        *failed = each.job;
        return status;
      }
      ready_ = job.array.ready;
    }
    const Plan plan = PlanOf(questions);
    if (absl::Status status = Launch(questions[0], plan); !status.ok()) return status;
    const Slot& slot = lane_.slots_[0];
    REDUCED_RETURN_IF_CUDA_ERROR(lane_.AwaitEvent(slot.kernel_end));
    float millis = 0;
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventElapsedTime(&millis, slot.kernel_begin, slot.kernel_end));
    double bytes = 0;
    for (const Question& each : questions) bytes += static_cast<double>(each.bytes());
    std::vector<absl::Status> statuses(questions.size());
    ForRanges(std::ssize(questions), /*grain=*/32, lane_.copiers_, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
        Answer& answer = answers_[questions[i].job];
        answered_[questions[i].job] = 1;
        std::optional<double>& kernel_us = answer.timing.kernel_us;
        kernel_us = kernel_us.value_or(0) + 1e3 * millis * static_cast<double>(questions[i].bytes()) / bytes;
        statuses[i] = Finish(questions[i], plan, i, &answer);
      }
      return true;
    });
    for (std::size_t i = 0; i < statuses.size(); ++i) {
      if (statuses[i].ok()) continue;
      *failed = questions[i].job;
      return statuses[i];
    }
    return absl::OkStatus();
  }

  // The table goes through slot 0; what pieces leave is written to the pinned memory of the last slot.
  absl::Status Launch(const Question& question, const Plan& plan) {
    const StageRange range("launch");
    const Slot& slot = lane_.slots_[0];
    const std::size_t piece_bytes = plan.pieces.size() * sizeof(ManyPiece);
    const std::size_t first_bytes = plan.first.size() * sizeof(unsigned);
    std::memcpy(slot.pinned, plan.pieces.data(), piece_bytes);
    std::memcpy(slot.pinned + piece_bytes, plan.first.data(), first_bytes);
    cudaGetLastError();  // launches would report what earlier calls of this thread failed with
    REDUCED_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(slot.device, slot.pinned, piece_bytes + first_bytes,
                                                 cudaMemcpyHostToDevice, lane_.kernel_stream_));
    const ManyPieces table{.pieces = reinterpret_cast<const ManyPiece*>(slot.device),
                           .first = reinterpret_cast<const unsigned*>(slot.device + piece_bytes),
                           .blocks = static_cast<int>(plan.first.size()) - 1};
    const ManyLaunch launch{.dtype = question.spec->dtype,
                            .exact_accumulators = ExactAccumulatorsFor(*question.spec),
                            .others = AccumulatorsFor(*question.spec),
                            .omit_nan = question.spec->nan_policy == NanPolicy::kOmit,
                            .table = table,
                            .partials = partials(),
                            .digits = digits(plan),
                            .stream = lane_.kernel_stream_};
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_begin, lane_.kernel_stream_));
    cudaError_t error = FAILPOINT("cuda/launch") ? cudaErrorLaunchOutOfResources : cudaSuccess;
    if (error == cudaSuccess && question.kernels == Kernels::kFingerprints) {
      error = LaunchFingerprint(
          {.word_bytes = question.width(), .table = table, .sums = residues(), .stream = lane_.kernel_stream_});
    } else if (error == cudaSuccess) {
      error = question.kernels == Kernels::kSums ? LaunchManySums(launch) : LaunchManyFolds(launch);
    }
    if (error != cudaSuccess) return DeviceError(error, "launching a reduction of many arrays");
    REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_end, lane_.kernel_stream_));
    return absl::OkStatus();
  }
  std::byte* left() const { return lane_.slots_[kSlots - 1].pinned; }
  Partial* partials() const { return reinterpret_cast<Partial*>(left()); }
  ExactDigits* digits(const Plan& plan) const {
    return reinterpret_cast<ExactDigits*>(partials() + plan.pieces.size());
  }
  Residues* residues() const { return reinterpret_cast<Residues*>(left()); }

  absl::Status Finish(const Question& question, const Plan& plan, std::size_t number, Answer* answer) {
    const std::size_t begin = number == 0 ? 0 : plan.ends[number - 1], end = plan.ends[number];
    if (question.kernels == Kernels::kFingerprints) return FinishFingerprint(question, plan, begin, end);
    const bool exact = question.kernels == Kernels::kSums;
    State state;
    if (exact) state.exact = std::make_unique<ExactSums>();
    for (std::size_t piece = begin; piece < end; ++piece) {
      Combine(partials()[piece], &state.partial);
      if (exact) Merge(digits(plan)[piece], state.exact.get());
    }
    Job& job = jobs_[question.job];
    if (!job.partition.has_value()) {
      answer->state = std::move(state);
      return absl::OkStatus();
    }
    const absl::StatusOr<std::vector<std::byte*>> places = PlacesOf(question);
    if (!places.ok()) return places.status();
    std::vector<absl::Status> errors;
    OutputErrors output_errors(places->size(), job.errors == nullptr ? nullptr : &errors);
    output_errors.Store(*question.spec, state, *places, 0);
    absl::Status status = output_errors.Finish(job.partition->layout);
    if (job.errors == nullptr) return status;
    job.errors->resize(job.spec.ops.size());
    for (std::size_t i = 0; i < errors.size(); ++i) (*job.errors)[question.ops[i]] = errors[i];
    return status;
  }

  absl::Status FinishFingerprint(const Question& question, const Plan& plan, std::size_t begin, std::size_t end) {
    Job& job = jobs_[question.job];
    Residues sum = SumOfPowers(static_cast<std::uint64_t>(question.count()));
    for (std::size_t i = begin; i < end; ++i) {
      const ManyPiece& piece = plan.pieces[i];
      sum = MultipliedAndAdded(FromFirstWord(residues()[i], piece.data, question.width()),
                               PowersOfBases(static_cast<std::uint64_t>(piece.base_index)), sum);
    }
    const absl::StatusOr<std::vector<std::byte*>> places = PlacesOf(question);
    if (!places.ok()) return places.status();
    for (std::size_t i = 0; i < question.spec->ops.size(); ++i) {
      Entries entries = NoEntries(question.spec->ops[i], job.spec.dtype);
      for (std::size_t base = 0; base < sum.size(); ++base) entries.Add(base, sum[base]);
      if (!places->empty()) {
        const FoldLimits limits{};  // it takes no memory
        absl::Status status =
            AnswerFromState(entries, *MakeDistributionFold(question.spec->ops[i], job.spec, limits), (*places)[i]);
        if (!status.ok()) return status;
      }
      if (job.states == nullptr) continue;
      State& state = job.states->emplace_back();
      state.partial.count = job.spec.count;
      state.entries.push_back(std::move(entries));
    }
    return absl::OkStatus();
  }

  // Where the answers to a question go; none are wanted, if there are none.
  absl::StatusOr<std::vector<std::byte*>> PlacesOf(const Question& question) {
    std::optional<std::vector<std::byte*>>& all = places_[question.job];
    if (!all.has_value()) {
      absl::StatusOr<std::vector<std::byte*>> placed = jobs_[question.job].place(1, /*groups=*/1, /*keys=*/nullptr);
      if (!placed.ok()) return placed.status();
      all = *std::move(placed);
    }
    if (question.ops.empty()) return *all;
    std::vector<std::byte*> places;
    for (const std::size_t op : question.ops) {
      if (!all->empty()) places.push_back((*all)[op]);
    }
    return places;
  }

  CudaLane& lane_;
  std::vector<Job>& jobs_;
  std::vector<Answer>& answers_;
  std::vector<char>& answered_;
  std::deque<ReduceSpec> specs_;                                // of questions
  std::vector<std::optional<std::vector<std::byte*>>> places_;  // of each job
  void* ready_ = nullptr;                                       // an event that is over
};

absl::Status CudaLane::ReduceTogether(std::vector<Job>& jobs, double expected_us, std::vector<Answer>* answers,
                                      std::vector<char>* answered, std::size_t* failed) {
  expected_us_ = expected_us;
  REDUCED_RETURN_IF_CUDA_ERROR(cudaSetDevice(device_));
  const StageRange range("reduce many arrays");
  const absl::Status status = ManyArrays(*this, jobs, answers, answered).Run(failed);
  if (!status.ok()) Abandon();
  return status;
}

}  // namespace reduced
