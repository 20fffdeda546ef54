// CudaLane::WholeArray: ops about two arrays, from exact sums of pairs (pair_sums.h).
#include <algorithm>
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

// The terms whose sums a kernel adds up for an op: all that answer it, and seldom more. None: no kernel does.
std::span<const SumTerm> KernelTermsOf(Op op) {
  if (op == Op::kDistanceL2) return TermsOf(Op::kCosine);  // (x - y)^2 = x^2 - 2 x y + y^2
  if (op == Op::kCompare) return {};                       // needs more than sums
  for (const Op each : {Op::kDot, Op::kWeightedMean, Op::kCosine, Op::kCorr, Op::kDistanceL1}) {
    const std::span<const SumTerm> terms = TermsOf(each);
    const auto has = [terms](SumTerm term) { return std::ranges::find(terms, term) != terms.end(); };
    if (!TermsOf(op).empty() && std::ranges::all_of(TermsOf(op), has)) return terms;
  }
  return {};
}

}  // namespace

bool CudaLane::WholeArray::AnswersPairs(const Job& job, const OpCall& call) {
  const OtherArray& other = OtherOf(job, call);
  return RowOf(job.spec.dtype).is_float && HasKernels(job.spec.dtype) && other.array.dtype == job.spec.dtype &&
         other.broadcast.empty() && HasPairKernel(KernelTermsOf(call.op));
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
      } else if (call.op == Op::kDistanceL2) {
        sums.AddDigits(SumTerm::kSquaredDistance, term == SumTerm::kXY ? -2 : 1, digits->digit[i], PairUnit(term));
      }
    }
  }
  Entries state = NoEntries(call, job_.spec.dtype);
  sums.Save(&state);
  const FoldLimits limits = UncountedLimits();
  return AnswerFromState(state, *MakeDistributionFold(call, job_.spec, limits), answers);
}

}  // namespace reduced
