// CudaLane::WholeArray: ops about two arrays, from exact sums of pairs (pair_sums.h).
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/cuda/pair_sums.h"
#include "kernels/cuda/whole_array.h"
#include "kernels/folds/fold.h"
#include "kernels/folds/term_sums.h"

namespace reduced {
namespace {

// The sums that a kernel adds up for an op: at least those that answer it.
constexpr std::array kKernelTerms = {
    std::array<std::span<const SumTerm>, 2>{TermsOf(Op::kDot), TermsOf(Op::kDot)},
    std::array<std::span<const SumTerm>, 2>{TermsOf(Op::kWeightedMean), TermsOf(Op::kWeightedMean)},
    std::array<std::span<const SumTerm>, 2>{TermsOf(Op::kCov), TermsOf(Op::kCorr)},
    std::array<std::span<const SumTerm>, 2>{TermsOf(Op::kSlope), TermsOf(Op::kCorr)},
    std::array<std::span<const SumTerm>, 2>{TermsOf(Op::kCorr), TermsOf(Op::kCorr)},
    std::array<std::span<const SumTerm>, 2>{TermsOf(Op::kCosine), TermsOf(Op::kCosine)},
    std::array<std::span<const SumTerm>, 2>{TermsOf(Op::kDistanceL2), TermsOf(Op::kCosine)},
    std::array<std::span<const SumTerm>, 2>{TermsOf(Op::kDistanceL1), TermsOf(Op::kDistanceL1)},
};

std::span<const SumTerm> KernelTermsOf(Op op) {
  const std::span<const SumTerm> wanted = TermsOf(op);
  if (op == Op::kCompare) return {};
  for (const auto& [of_op, of_kernel] : kKernelTerms) {
    if (std::ranges::equal(wanted, of_op)) return of_kernel;
  }
  return {};
}

}  // namespace

bool CudaLane::WholeArray::AnswersPairs(const Job& job, const OpCall& call) {
  const OtherArray& other = OtherOf(job, call);
  return RowOf(job.spec.dtype).is_float && other.array.dtype == job.spec.dtype && other.broadcast.empty() &&
         HasPairKernel(KernelTermsOf(call.op));
}

absl::Status CudaLane::WholeArray::Pairs(const OpCall& call, const std::byte* data, const std::byte* other,
                                         std::int64_t count, std::byte* answers) {
  const absl::StatusOr<std::byte*> room = Allocate(sizeof(PairDigits), &memory_.emplace_back());
  if (!room.ok()) return room.status();
  const std::span<const SumTerm> terms = KernelTermsOf(call.op);
  const auto digits = std::make_unique<PairDigits>();
  TermSums sums(call, job_.spec);
  for (std::int64_t first = 0; first < count; first += PairDigits::kMostPairs) {
    const std::int64_t some = std::min(PairDigits::kMostPairs, count - first);
    const std::int64_t begin = first * RowOf(job_.spec.dtype).bytes;
    const PairSumsLaunch launch{.dtype = job_.spec.dtype,
                                .terms = terms,
                                .x = data + begin,
                                .y = other + begin,
                                .count = some,
                                .out = reinterpret_cast<PairDigits*>(*room),
                                .multiprocessors = lane_.multiprocessors_,
                                .stream = lane_.kernel_stream_};
    const auto launches = [&] {
      const cudaError_t error = cudaMemsetAsync(*room, 0, sizeof(PairDigits), lane_.kernel_stream_);
      return error == cudaSuccess ? LaunchPairSums(launch) : error;
    };
    const absl::Status status =
        Run(launches, *room, sizeof(*digits), {{0, sizeof(*digits), reinterpret_cast<std::byte*>(digits.get())}});
    if (!status.ok()) return status;
    if (digits->infinities > 0) return absl::UnimplementedError("pairs: got infinities; allowed: finite elements, NaN");
    const auto nans = static_cast<std::int64_t>(digits->nans);
    const bool omits = job_.spec.nan_policy == NanPolicy::kOmit;
    sums.AddCount(TermCount::kElements, omits ? some - nans : some);
    if (!omits) sums.AddCount(TermCount::kUndefined, nans);
    for (std::size_t i = 0; i < terms.size(); ++i) {
      const SumTerm term = terms[i];
      if (std::ranges::find(TermsOf(call.op), term) != TermsOf(call.op).end()) {
        sums.AddDigits(term, 1, digits->digit[i], PairUnit(term));
      } else if (call.op == Op::kDistanceL2) {  // (x - y)^2 = x^2 - 2 x y + y^2
        sums.AddDigits(SumTerm::kSquaredDistance, term == SumTerm::kXY ? -2 : 1, digits->digit[i], PairUnit(term));
      }
    }
  }
  Entries state = NoEntries(call, job_.spec.dtype);
  sums.Save(&state);
  const FoldLimits limits{[](std::int64_t) { return absl::OkStatus(); }, [](std::int64_t) {},
                          [this] { return WhyStop(job_); }};
  return AnswerFromState(state, *MakeDistributionFold(call, job_.spec, limits), answers);
}

}  // namespace reduced
