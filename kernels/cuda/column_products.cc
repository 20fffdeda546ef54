// CudaLane::ReduceMatrices: cov_matrix and corr_matrix from sums that the device adds up exactly. The host answers by
// the CPU engine's formulas.
#include "kernels/cuda/column_products.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "kernels/cuda/lane.h"
#include "kernels/cuda/stage_range.h"
#include "kernels/cuda/status.h"
#include "kernels/folds/elements.h"
#include "kernels/folds/pair_sums.h"
#include "kernels/folds/term_sums.h"
#include "kernels/system/failpoint.h"
#include "oneapi/tbb/parallel_for.h"

namespace reduced {
namespace {

// Of each pair of columns, in the order of PairsOfColumns.
std::int64_t NumberOfPair(std::int64_t a, std::int64_t b, std::int64_t columns) {
  return a * columns - a * (a - 1) / 2 + b - a;
}

double MatrixAnswer(const OpCall& call, const ReduceSpec& spec, std::int64_t rows, const ColumnDigits* digits,
                    std::int64_t a, std::int64_t b) {
  const std::int64_t columns = call.given().columns;
  TermSums sums(call, spec);
  sums.AddCount(TermCount::kElements, rows);
  for (const SumTerm term : TermsOf(call.op)) {
    std::int64_t number = NumberOfPair(a, b, columns);
    if (term == SumTerm::kX) number = PairsOfColumns(columns) + a;
    if (term == SumTerm::kY) number = PairsOfColumns(columns) + b;
    if (term == SumTerm::kXX) number = NumberOfPair(a, a, columns);
    if (term == SumTerm::kYY) number = NumberOfPair(b, b, columns);
    sums.AddDigits(term, 1, digits[number].digit, ColumnDigits::kUnit);
  }
  return PairSumsAnswer(call.op, sums, spec.ddof);
}

}  // namespace

bool CudaLane::AnswersMatrix(const Job& job, const OpCall& call) const {
  const Layout& layout = job.partition->layout;
  const DTypeRow& dtype = RowOf(job.spec.dtype);
  constexpr int kLeastMajor = 8;  // of the compute capability: tensor cores of f64
  return IsMatrix(call.op) && dtype.is_float && dtype.bytes <= 4 && HasKernels(job.spec.dtype) &&
         compute_major_ >= kLeastMajor && job.partition->uniform() && layout.run() >= layout.elements &&
         layout.outputs > 0 && layout.elements > 0 && layout.elements % call.given().columns == 0 &&
         layout.elements / call.given().columns <= ColumnDigits::kMostRows;
}

absl::Status CudaLane::ReduceMatrices(const Job& job, CudaArrays& arrays, Timing* timing) {
  const StageRange range("reduce matrices");
  const Layout& layout = job.partition->layout;
  const absl::StatusOr<std::vector<std::byte*>> answers = job.place(layout.outputs, /*groups=*/1, /*keys=*/nullptr);
  if (!answers.ok()) return answers.status();
  std::unique_ptr<ArrayMemory> held;
  const absl::StatusOr<const std::byte*> data = HoldArray(job, arrays, &held, timing);
  if (!data.ok()) return data.status();
  for (std::size_t op = 0; op < job.spec.ops.size(); ++op) {
    const OpCall& call = job.spec.ops[op];
    const std::int64_t columns = call.given().columns, rows = layout.elements / columns;
    const std::int64_t sums = PairsOfColumns(columns) + columns, sum_bytes = sums * std::int64_t{sizeof(ColumnDigits)};
    const std::int64_t bytes = sum_bytes + std::int64_t{sizeof(unsigned long long)};
    const absl::StatusOr<std::unique_ptr<ArrayMemory>> room = arrays.Allocate(bytes);
    if (!room.ok()) return room.status();
    auto* const out = static_cast<std::byte*>(const_cast<void*>((*room)->array().data));
    std::vector<ColumnDigits> digits(static_cast<std::size_t>(sums));
    unsigned long long not_finite = 0;
    const std::vector<Region> regions = {{0, sum_bytes, reinterpret_cast<std::byte*>(digits.data())},
                                         {sum_bytes, sizeof(not_finite), reinterpret_cast<std::byte*>(&not_finite)}};
    ColumnProductsLaunch launch{.dtype = job.spec.dtype,
                                .rows = rows,
                                .columns = static_cast<int>(columns),
                                .out = reinterpret_cast<ColumnDigits*>(out),
                                .not_finite = reinterpret_cast<unsigned long long*>(out + sum_bytes),
                                .multiprocessors = multiprocessors_,
                                .stream = kernel_stream_};
    for (std::int64_t output = 0; output < layout.outputs; ++output) {
      launch.data = *data + layout.Start(output) * RowOf(job.spec.dtype).bytes;
      absl::Status status = [&]() -> absl::Status {
        if (absl::Status why = WhyStop(job); !why.ok()) return why;
        const Slot& slot = slots_[kSlots - 1];
        cudaGetLastError();  // the launch would report what earlier calls of this thread failed with
        REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_begin, kernel_stream_));
        REDUCED_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(out, 0, static_cast<std::size_t>(bytes), kernel_stream_));
        const cudaError_t error =
            FAILPOINT("cuda/launch") ? cudaErrorLaunchOutOfResources : LaunchColumnProducts(launch);
        if (error != cudaSuccess) return DeviceError(error, "launching sums of products of columns");
        REDUCED_RETURN_IF_CUDA_ERROR(cudaEventRecord(slot.kernel_end, kernel_stream_));
        if (absl::Status copied = CopyToHost(job, out, bytes, regions, timing); !copied.ok()) return copied;
        return AddTime(slot.kernel_begin, slot.kernel_end, &Timing::kernel_us, timing);
      }();
      if (!status.ok()) {
        Abandon();  // what is in flight uses memory of the reduction
        return status;
      }
      if (not_finite > 0) {
        return absl::UnimplementedError("matrix: got NaNs or infinities; allowed: finite elements");
      }
      std::byte* const to = (*answers)[op] + output * columns * columns * std::int64_t{sizeof(double)};
      copiers_.execute([&] {
        tbb::parallel_for(std::int64_t{0}, columns, [&](std::int64_t a) {
          for (std::int64_t b = a; b < columns; ++b) {
            const double answer = MatrixAnswer(call, job.spec, rows, digits.data(), a, b);
            StoreAt(answer, a * columns + b, to);
            StoreAt(answer, b * columns + a, to);
          }
        });
      });
    }
  }
  return absl::OkStatus();
}

}  // namespace reduced
