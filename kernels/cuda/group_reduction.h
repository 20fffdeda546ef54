// What CudaLane::ReduceGroups does for one job, on the host: see groups.cc and quick_groups.cc.
#ifndef REDUCED_KERNELS_CUDA_GROUP_REDUCTION_H_
#define REDUCED_KERNELS_CUDA_GROUP_REDUCTION_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/algebra/layout.h"
#include "kernels/algebra/state.h"
#include "kernels/cpu/grouping.h"
#include "kernels/cuda/arrays.h"
#include "kernels/cuda/find_groups.h"
#include "kernels/cuda/groups.h"
#include "kernels/cuda/key_quantiles.h"
#include "kernels/cuda/key_tables.h"
#include "kernels/cuda/lane.h"
#include "kernels/engine/engine.h"
#include "kernels/engine/output_errors.h"

namespace reduced {

// Used by the lane's thread; the lane abandons what is in flight after an error, before the reduction is destroyed.
class CudaLane::GroupReduction {
 public:
  // Where a reduction of a piece of an array begins in that of the array, which its errors are about.
  struct Within {
    const GroupReduction* whole = nullptr;  // null: it is of an array
    std::int64_t output = 0;
    std::int64_t row = 0;  // with keys
  };

  // All of them outlive the reduction. `scratch`: counts the host memory that groups are found with.
  GroupReduction(CudaLane& lane, const Job& job, CudaArrays& arrays, ArrayBudget& scratch, Timing* timing,
                 const Within& within);

  // Blocks until all answers are written.
  absl::Status Run();

  // Whether Run ended because the device has no room. Then, and in place of Run, RunInPieces may do, of an array that
  // is not in device memory. `why`: there is no room; it is returned if there is none for the pieces either. In
  // group_pieces.cc.
  bool LacksRoom(const absl::Status& status) const;
  absl::Status RunInPieces(const absl::Status& why);

 private:
  class Pieces;

  // How parts are folded.
  enum class Method : std::uint8_t {
    kStates,  // to states of any accumulators
    kQuick,   // to folds of the kinds of ops, which may not know an answer
  };
  // An output whose parts are among those of a batch.
  struct Pending {
    std::int64_t output = 0;
    std::int64_t first = 0;  // part
    std::int64_t parts = 0;  // 0: it has no positions
  };

  // Where parts are on their way to the device, and where answers and states come back through.
  Slot& part_slot() const { return lane_.slots_[1]; }
  Slot& state_slot() const { return lane_.slots_[2]; }

  static SliceDimensions DimensionsFrom(const std::vector<Dimension>& dimensions);
  // The job, of another array.
  Job JobOf(const ArrayRef& array, std::int64_t count) const;
  // Device memory, which is freed with `memory`, once what uses it is done; or the lane's own, if it has enough left.
  absl::StatusOr<std::byte*> Allocate(std::int64_t bytes, std::vector<std::unique_ptr<ArrayMemory>>* memory);
  // Likewise, several.
  struct Room {
    std::int64_t bytes = 0;
    std::vector<std::unique_ptr<ArrayMemory>>* held = nullptr;
    std::byte** memory = nullptr;
  };
  absl::Status Allocate(const std::vector<Room>& rooms);
  // Device memory with `count` elements, at a multiple of their size: where they are, or a copy.
  absl::StatusOr<const std::byte*> Hold(const ArrayRef& array, std::int64_t count, std::int64_t width);
  // Host memory with the elements of a side array: where they are, or a copy.
  absl::StatusOr<const std::byte*> OnHost(const SideArray& side);
  // Copies device memory to `to`, chunk by chunk. Blocks.
  absl::Status Fetch(const std::byte* from, std::int64_t bytes, std::byte* to);
  // Copies device memory to the pinned memory of state_slot(), after what the kernel stream does before. Blocks.
  absl::Status CopyBack(const std::byte* from, std::int64_t bytes);
  // Runs launches on the kernel stream, whose results are the first `bytes` of the slot's device memory, and copies
  // them back to its pinned memory; End blocks until they are there.
  absl::Status Begin(absl::FunctionRef<cudaError_t()> launches, std::int64_t bytes, const Slot& slot);
  absl::Status End(const Slot& slot);
  // Both, with state_slot().
  absl::Status Launch(absl::FunctionRef<cudaError_t()> launches, std::int64_t bytes);

  // The array and its mask.
  absl::Status HoldArray();
  // Ends with the number of groups, and their bounds or the group of each row. In find_groups.cc, like the following.
  absl::Status FindGroups();
  absl::Status CheckOffsets();
  absl::Status CheckKeys(const std::byte* keys);
  // The error about the key of that row. `keys`: device memory.
  absl::Status BadKeyIn(const void* keys, std::int64_t row);
  absl::Status FindKeys();
  absl::Status FetchKeys(const std::byte* found, std::int64_t groups);
  absl::Status FindGroupsOnHost();
  // The bounds of segments, or how many groups there are by key and, if they are to be found, which. In
  // group_pieces.cc.
  absl::Status FindGroupsForPieces();
  // Whether no answer tells where an element is in the array. Then elements are sorted by key, and not their rows.
  bool MovesElements() const;
  // Of the array's elements by the groups of their rows, without memory for what is sorted.
  SortByGroupLaunch SortOfElements(const std::uint32_t* ids) const;
  absl::Status SortRows();
  // Sets grouping_.bounds, if there are only those on the device.
  absl::Status FetchBounds();
  // Sets bounds_, if there are groups.
  absl::Status HoldBounds();
  absl::Status PlaceAnswers();
  // How the positions of outputs lie in the array.
  void SetPositions();

  // Answers all outputs, by sorting the rows if there are keys.
  absl::Status AnswerAll();
  // An output as one part. Takes bounds on the host, if there are groups.
  GroupPart WholeOf(std::int64_t output) const;
  // Answers all outputs, or those of ascending numbers, in parts. kQuick: what is not known is added to left_.
  absl::Status AnswerAllInParts(Method method);
  absl::Status AnswerInParts(const std::vector<std::int64_t>& outputs, Method method);
  absl::Status AnswerInParts(std::int64_t output, const GroupPart& whole, Method method);
  // The outputs of those numbers, as many as there are wholes, each as one part.
  absl::Status Locate(const std::int64_t* numbers, std::vector<GroupPart>* wholes);
  absl::Status AnswerPending(Method method);
  absl::Status FoldToStates();
  State StateOf(const Pending& pending) const;

  // In key_tables.cc.
  // A table by key with what the ops of one kind are answered from.
  struct FilledTable {
    const QuickOps* ops = nullptr;
    KeyAnswersLaunch answers{};                          // without places
    std::vector<ListedElement> listed{};                 // by group
    std::vector<std::unique_ptr<ArrayMemory>> memory{};  // of the table
  };
  // Whether there are tables for all ops.
  bool HasTables() const;
  // Whether the tables are larger than the caches, so that rows are brought into the order of parts of the groups
  // before they are added.
  bool HasRowsInParts() const;
  // Whether that can be done with keys as they are given: all rows are there, and keys are as wide as ids_.
  bool CanSortGivenKeys() const;
  // Does so in device memory that *held frees, if there is any, and has *any add those.
  absl::Status OrderRowsInParts(KeyTablesLaunch* any, std::vector<std::unique_ptr<ArrayMemory>>* held);
  // The rows and their keys, for kernels that read both.
  KeyTablesLaunch KeyedRows(DType dtype, const void* keys, bool drop) const;
  // Adds all rows to tables_; these are empty if a table doesn't take all rows, or there is no memory for it. Keys that
  // are outside and not to be dropped are an error.
  absl::Status FillTables(DType dtype, const void* keys, bool drop);
  absl::Status FillTable(const QuickOps& ops, const KeyTablesLaunch& any, bool* filled);
  // Answers all outputs.
  absl::Status AnswerFromTables();
  absl::Status AnswerFromRecords(const std::int64_t* outputs, std::int64_t count);
  // Adds what a table has of a group to its state, which has its counts.
  void AddTo(const FilledTable& from, const KeyRecord& record, std::int64_t group, State* state) const;

  // In key_quantiles.cc.
  // Whether quantiles by key take less time by brackets than by sorting the rows.
  bool HasBrackets() const;
  // Sets brackets_, unless they miss a rank, or too many elements lie within them, or there is no memory for these.
  // Keys that are outside and not to be dropped are an error.
  absl::Status FillBrackets(DType dtype, const void* keys, bool drop);

  // Of a job whose ops are quantiles. In quantiles.cc. UNIMPLEMENTED: there are no kernels for so long outputs.
  absl::Status AnswerQuantiles();
  absl::Status AnswerQuantiles(std::size_t op);
  absl::Status AnswerAsArrays(std::size_t op, const std::vector<std::int64_t>& outputs);

  // In quick_groups.cc.
  // Answers all outputs, but for some that it adds to left_.
  absl::Status AnswerQuickly();
  // Some outputs whose answers are on their way back through a slot.
  struct QuickBatch {
    const Slot* slot = nullptr;  // null: none
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::vector<std::int64_t> places{};  // of the answers to each op, in the slot's memory
    std::int64_t left = 0;               // likewise, of which are not answered
  };
  using BatchLaunches = absl::FunctionRef<cudaError_t(const QuickBatch& batch)>;
  // Answers all outputs by launches for a batch at a time; what is not answered is added to left_ or *too_long.
  absl::Status AnswerInBatches(BatchLaunches launches, std::vector<std::int64_t>* too_long);
  absl::Status Begin(QuickBatch& batch, BatchLaunches launches);
  absl::Status End(const QuickBatch& batch, std::vector<std::int64_t>* too_long);
  absl::Status FoldQuickly();
  // From the folds of its parts in the pinned memory of state_slot(). False: an answer is not known.
  bool AnswerFromFolds(const Pending& pending) const;

  // Writes the answers of an output with that state, and the state, as far as they are wanted. Thread-safe.
  void Store(std::int64_t output, State state);
  // Whether an output has an error that ends the reduction.
  bool HasEnded() const { return errors_.Ended(outputs_); }
  absl::Status error();

  CudaLane& lane_;
  const Job& job_;
  const Partition& partition_;
  CudaArrays& arrays_;
  ArrayBudget& scratch_;
  Timing* const timing_;
  const Within within_;
  const bool keyed_;
  const bool grouped_;  // by segments or keys
  const std::int64_t columns_;
  const std::int64_t width_;           // bytes of an element
  const bool is_quantiles_;            // all ops are
  const std::vector<QuickOps> quick_;  // none: outputs are answered from states

  std::vector<std::unique_ptr<ArrayMemory>> device_memory_;
  std::int64_t spare_taken_ = 0;  // bytes of the lane's memory that is of no use else
  bool lacks_room_ = false;       // there was no device memory
  bool placed_ = false;           // answers_
  std::vector<std::unique_ptr<ArrayMemory>> host_memory_;
  GroupArray array_;
  Grouping grouping_{.groups = 1};        // one, unless there are segments or keys
  const std::int64_t* bounds_ = nullptr;  // of groups, in device memory; null: there are none, or only grouping_.bounds
  // With keys: the group of each row, in device memory; null: tables that read given keys answer.
  std::uint32_t* ids_ = nullptr;
  std::vector<FilledTable> tables_;      // empty: the rows are sorted
  std::optional<KeyBrackets> brackets_;  // likewise, without any
  std::int64_t grouped_positions_ = 0;   // of all groups, about
  std::int64_t outputs_ = 0;
  std::vector<std::byte*> answers_;  // of each op
  Layout names_;                     // of the outputs, for messages
  std::vector<Pending> pending_;     // of a batch
  std::vector<GroupPart> parts_;     // of these

  OutputErrors errors_{job_.spec.ops.size(), job_.errors};
  absl::Mutex mutex_;
  std::vector<std::int64_t> left_ ABSL_GUARDED_BY(mutex_);  // outputs that the device can't answer
};

}  // namespace reduced

#endif  // REDUCED_KERNELS_CUDA_GROUP_REDUCTION_H_
