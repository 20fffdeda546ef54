// One lane of the CUDA engine: the streams, events and memory that a reduction needs, allocated once.
#ifndef REDUCED_KERNELS_CUDA_LANE_H_
#define REDUCED_KERNELS_CUDA_LANE_H_

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/cuda/arrays.h"
#include "kernels/cuda/exact_sums.h"
#include "kernels/cuda/pipeline.h"
#include "kernels/cuda/slices.h"
#include "kernels/cuda/waits.h"
#include "kernels/engine/array_budget.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/pipelines.h"
#include "kernels/engine/stopwatch.h"
#include "kernels/folds/byte_counts.h"
#include "oneapi/tbb/task_arena.h"
#include "oneapi/tbb/task_group.h"

namespace reduced {

// Used by one thread at a time.
class CudaLane {
 public:
  // chunk_bytes: of each chunk that host memory is copied in, a multiple of 8. copiers: threads that copy them to
  // pinned memory. It and `waits` outlive the lane.
  static absl::StatusOr<std::unique_ptr<CudaLane>> Make(int device, std::int64_t chunk_bytes,
                                                        const cudaDeviceProp& properties, tbb::task_arena& copiers,
                                                        DeviceWaits& waits);
  ~CudaLane();
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;

  // Fills the result's state and timing. Blocks until the array is reduced; when it returns, OK or not, nothing is in
  // flight and the job's memory is no longer read. expected_us: what the device is expected to take. `arrays`: where
  // memory for a copy of an array with strides comes from.
  absl::Status Reduce(Job& job, const PipelineRow& pipeline, CudaArrays& arrays, double expected_us, Answer* result);

  // Of a job with a partition; blocks as Reduce does. Fills in the timing. `arrays`: where device memory comes from,
  // beyond what the lane has. `scratch`: counts host memory that groups are found with, and what pieces of an array
  // leave to be merged. In slices.cc.
  absl::Status ReducePartition(Job& job, CudaArrays& arrays, ArrayBudget& scratch, double expected_us, Timing* timing);

  // Engine::ReduceMany of those jobs that one launch or a few can do together: their answers, without what ran, and
  // that they are answered. Leaves the others. Blocks as Reduce does. `answers`, `answered`: one, or 0, of each job.
  // *failed: the job that an error is about. In many_arrays.cc.
  absl::Status ReduceTogether(std::vector<Job>& jobs, double expected_us, std::vector<Answer>* answers,
                              std::vector<char>* answered, std::size_t* failed);

  // Engine::Measure; blocks as Reduce does. At most kMaxLaunchElements.
  absl::Status Measure(const Job& job, const PipelineRow& pipeline, int repeats, double expected_us,
                       Measurement* measurement);

  // Engine::MeasureMatmul; blocks as Reduce does.
  absl::Status MeasureMatmul(MatmulJob& job, int repeats, MatmulMeasurement* measurement);

  int compute_major() const { return compute_major_; }  // of the device's compute capability

 private:
  // What says when a kernel is done, and when it ran.
  enum class Flight : std::uint8_t {
    kNone,         // no kernel
    kEvents,       // the slot's events
    kKernelTimes,  // the slot's `times`, which the kernels themselves write
  };
  // Where one chunk passes through: from pinned memory to device memory to a partial in mapped pinned memory.
  struct Slot {
    std::byte* pinned = nullptr;
    std::byte* device = nullptr;
    Partial* partial = nullptr;    // written by the kernel, read by the host
    ExactDigits* exact = nullptr;  // likewise
    KernelTimes* times = nullptr;  // likewise; kTimedKernels of them
    ByteCounts* bytes = nullptr;   // pinned: of elements without kernels
    cudaEvent_t copy_begin = nullptr, copy_end = nullptr;
    cudaEvent_t prepare_begin = nullptr, kernel_begin = nullptr, kernel_end = nullptr;
    std::int64_t count = 0;  // elements of its chunk
    // On its way to `pinned`.
    tbb::task_group filling;
    Stopwatch filling_since;
    absl::Mutex mutex;
    absl::Status fill_status ABSL_GUARDED_BY(mutex);  // of the first piece that failed
    // Its kernels are launched, and not yet waited for, unless kNone.
    Flight flight = Flight::kNone;
    int timed = 0;          // kernels that write `times`, in the order of the stream
    bool recorded = false;  // kernel_end, after the last kernel
  };
  // The pipeline's kernel, and that of exact sums.
  static constexpr int kTimedKernels = 2;
  // The host's copy into one slot, the transfer of another and the kernel on a third overlap.
  static constexpr int kSlots = 3;

  CudaLane(int device, std::int64_t chunk_bytes, const cudaDeviceProp& properties, tbb::task_arena& copiers,
           DeviceWaits& waits);

  absl::Status Allocate();
  absl::Status FoldChunks(const Job& job, const CudaPipeline& pipeline, Answer* result);
  absl::Status MeasureOnDevice(const Job& job, const CudaPipeline& pipeline, int repeats, Measurement* measurement);
  absl::Status MultiplyOnDevice(MatmulJob& job, int repeats, MatmulMeasurement* measurement);
  absl::Status MeasurePeak(DType dtype, void* sink, double* gflops);
  // Has the job reduce copies of those of its arrays in device memory that have strides: in memory of `arrays`, which
  // `memory` gets. Blocks. RESOURCE_EXHAUSTED: there is no room for them. In strided.cc.
  absl::Status GatherArrays(Job& job, CudaArrays& arrays, std::vector<std::unique_ptr<ArrayMemory>>* memory,
                            Timing* timing);
  static absl::Status AwaitReady(const Job& job);
  // Likewise an array beside the one that is reduced.
  static absl::Status AwaitReady(const Job& job, const ArrayRef& array);
  // What is copied to the device: the array's bytes as they lie, or, of memory of the host, stretches of them.
  struct Source {
    ArrayRef array{};
    std::int64_t first = 0;    // byte of the array
    std::int64_t stretch = 0;  // bytes of each; 0: there is one
    std::int64_t stride = 0;   // bytes between their beginnings
  };
  static bool IsCopiedByHost(const Source& from);
  void StartFilling(const Source& from, std::int64_t begin, std::int64_t bytes, Slot& slot);
  absl::Status AwaitFilled(Slot& slot);
  static absl::Status CopyPiece(const Source& from, std::int64_t begin, std::int64_t bytes, std::byte* to);
  // To `to` in device memory; through the slot's pinned memory, if the device can't read it where it is.
  absl::Status CopyIn(const Source& from, std::int64_t begin, std::int64_t bytes, std::byte* to, Slot& slot,
                      Timing* timing);
  Launch LaunchOf(const ReduceSpec& spec, const void* data, std::int64_t count, std::int64_t base_index,
                  const Slot& slot) const;
  absl::Status StartKernel(const CudaPipeline& pipeline, Launch launch, AccumulatorSet exact_accumulators, bool alone,
                           Slot& slot);
  // Of elements without kernels, which have 8 bits: counts them.
  absl::Status StartCounting(const ReduceSpec& spec, const Launch& launch, Slot& slot);
  cudaError_t AwaitEvent(cudaEvent_t event);
  absl::Status AwaitKernel(Slot& slot);
  absl::Status Collect(const Job& job, const CudaPipeline& pipeline, Slot& slot, Answer* result);
  class Slices;
  // Of ops that accumulators answer.
  absl::Status ReduceFromStates(Job& job, CudaArrays& arrays, ArrayBudget& scratch, Timing* timing);
  // Of a job with ops about distributions. In distributions.cc.
  absl::Status ReduceDistributions(const Job& job, CudaArrays& arrays, ArrayBudget& scratch, Timing* timing);
  class WholeArray;
  // Whether the elements of each output are neighbours, and so many that launches for each output are worth it.
  static bool HasLongOutputs(const Job& job);
  // The longest output whose quantiles are answered together with those of others, if all have so many positions.
  static std::int64_t LongestOfMany(std::int64_t positions, int multiprocessors);
  absl::Status ReduceWholeArrays(const Job& job, CudaArrays& arrays, ArrayBudget& scratch, Timing* timing);
  // The other operand in device memory, which `memory` gets if it was not there.
  absl::StatusOr<const std::byte*> HoldOther(const Job& job, const SideArray& other, CudaArrays& arrays,
                                             std::vector<std::unique_ptr<ArrayMemory>>* memory, Timing* timing);
  class ManyArrays;
  class PairSlices;
  // Ops about two arrays, of all outputs along axes at once; those that are so, where long ones may be answered one
  // after the other. In pair_slices.cc.
  static bool AnswersPairsAlongAxes(const Job& job, const OpCall& call, bool one_by_one);
  absl::Status ReducePairsAlongAxes(const Job& job, CudaArrays& arrays, Timing* timing);
  // cov_matrix and corr_matrix. In column_products.cc.
  bool AnswersMatrix(const Job& job, const OpCall& call) const;
  absl::Status ReduceMatrices(const Job& job, CudaArrays& arrays, Timing* timing);
  absl::Status ReduceOnHost(const Job& job, CudaArrays& arrays, ArrayBudget& scratch, Timing* timing);
  // Along axes.
  absl::Status ReduceSlices(const Job& job, CudaArrays& arrays, ArrayBudget& scratch, Timing* timing);
  absl::Status AnswerOneByOne(const Job& job, const std::vector<std::byte*>& answers, Timing* timing);
  // `why`: why the device can't have the whole array; what it answers if it has no room for a piece either.
  absl::Status AnswerInPieces(const Job& job, const std::vector<std::byte*>& answers, CudaArrays& arrays,
                              ArrayBudget& scratch, const absl::Status& why, Timing* timing);
  absl::Status AnswerFromParts(const Job& job, const std::vector<std::byte*>& answers, CudaArrays& arrays,
                               ArrayBudget& scratch, const absl::Status& why, Timing* timing);
  absl::StatusOr<const std::byte*> HoldArray(const Job& job, CudaArrays& arrays, std::unique_ptr<ArrayMemory>* memory,
                                             Timing* timing);
  // Copies the first `bytes` of what is ready to `to` in device memory, chunk by chunk. Blocks. `job`: for whom.
  absl::Status CopyToDevice(const Job& job, const Source& from, std::int64_t bytes, std::byte* to, Timing* timing);
  // Bytes of device memory that go to `to` on the host.
  struct Region {
    std::int64_t begin = 0;
    std::int64_t bytes = 0;
    std::byte* to = nullptr;
  };
  // Copies them from the `bytes` at `from`, after what was launched. Blocks. In slices.cc.
  absl::Status CopyToHost(const Job& job, const std::byte* from, std::int64_t bytes, const std::vector<Region>& regions,
                          Timing* timing);
  // Copies from pinned memory; much of it by several threads.
  void Spread(const std::byte* from, std::int64_t bytes, std::byte* to);
  // Adds the time between two events that are over.
  static absl::Status AddTime(cudaEvent_t begin, cudaEvent_t end, std::optional<double> Timing::*stage, Timing* timing);
  class GroupReduction;
  // By segments, by keys or under a mask. In groups.cc.
  absl::Status ReduceGroups(Job& job, CudaArrays& arrays, ArrayBudget& scratch, Timing* timing);
  // Of a job that failed: what is in flight is waited for and forgotten.
  void Abandon();

  const int device_;
  const std::int64_t chunk_bytes_;
  const int multiprocessors_;
  const std::int64_t shared_bytes_;  // that a block can have of a multiprocessor's memory
  const std::int64_t cache_bytes_;   // of all multiprocessors
  const int compute_major_;
  tbb::task_arena& copiers_;
  DeviceWaits& waits_;
  double expected_us_ = 0;  // of the job
  cudaStream_t copy_stream_ = nullptr;
  cudaStream_t kernel_stream_ = nullptr;
  void* scratch_ = nullptr;
  void* exact_scratch_ = nullptr;
  ByteCounts* byte_counts_ = nullptr;  // device memory
  std::array<Slot, kSlots> slots_;     // the chunks of an array take turns
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_LANE_H_
