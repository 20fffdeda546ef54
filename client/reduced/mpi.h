// Reduces an array whose parts are in the ranks of an MPI communicator: every rank has the results of the whole array,
// with the bits that one server gives for it, however it is cut.
//
//   MPI_Init(&argc, &argv);
//   auto client = reduced::client::Client::Create({.server = "unix:/run/reduced/socket"});  // near each rank
//   auto whole = reduced::client::Allreduce(**client, ArrayView::Of(part), {"mean", "argmax"}, {}, MPI_COMM_WORLD);
//   if (whole.ok()) std::cout << whole->Find("mean")->AsDouble();
//
// Header-only, so that the library needs no MPI and works with any: compile with mpicxx, or link MPI::MPI_CXX. Each
// rank sends some kilobytes, whatever the size of its part; with ops of the distribution (ops.h), such as a median, up
// to some megabytes. All ranks must have the same byte order.
#ifndef REDUCED_MPI_H_
#define REDUCED_MPI_H_

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "reduced/client.h"
#include "reduced/merge.h"
#include "reduced/ops.h"

namespace reduced::client {

// An element of MpiStates::datatype(): the state of a part, nothing, or why a part has no state. A plain value of fixed
// size, because the elements of an MPI_Op are. States have at most some 2 KiB.
class MpiState {
 public:
  MpiState() = default;  // nothing: there is no element
  // Reply.state, or an error. A state that does not fit is RESOURCE_EXHAUSTED; a longer message is cut.
  explicit MpiState(const absl::StatusOr<std::string>& state) {
    if (state.ok() && state->size() <= sizeof(bytes_)) {
      Set(kState, *state);
    } else if (state.ok()) {
      *this = MpiState(absl::ResourceExhaustedError("state: got " + std::to_string(state->size()) +
                                                    " bytes; allowed: " + std::to_string(sizeof(bytes_))));
    } else {
      Set(static_cast<std::int32_t>(state.status().code()), std::string(state.status().message()));
    }
  }

  bool empty() const { return code_ == kNothing; }
  // The state, or the error. Of nothing: an empty string.
  absl::StatusOr<std::string> state() const {
    std::string bytes(bytes_, std::min<std::size_t>(size_, sizeof(bytes_)));
    if (code_ <= kState) return bytes;
    return absl::Status(static_cast<absl::StatusCode>(code_), bytes);
  }

  // Of these elements and those of `later`, which follow them. The first error stays.
  MpiState Then(const MpiState& later) const {
    if (code_ > kState || later.empty()) return *this;
    if (later.code_ > kState || empty()) return later;
    absl::StatusOr<MergeReply> merged =
        MergeStates({*state(), *later.state()}, {.return_state = true, .results = false});
    if (!merged.ok()) return MpiState(merged.status());
    return MpiState(std::move(merged->state));
  }

 private:
  static constexpr std::int32_t kNothing = -1;
  static constexpr std::int32_t kState = 0;

  void Set(std::int32_t code, const std::string& bytes) {
    code_ = code;
    size_ = static_cast<std::uint32_t>(std::min(bytes.size(), sizeof(bytes_)));
    std::memcpy(bytes_, bytes.data(), size_);
  }

  std::int32_t code_ = kNothing;  // of absl::StatusCode
  std::uint32_t size_ = 0;        // of what is in bytes_
  char bytes_[4088] = {};         // the state, or the message of the error
};
static_assert(std::is_trivially_copyable_v<MpiState>);

// The MPI datatype of an MpiState, and the MPI_Op that puts consecutive states together. Not commutative: MPI folds in
// the order of the ranks. Errors are not lost: the first one is the outcome. Make it after MPI_Init, and destroy it
// before MPI_Finalize. For MPI_Allreduce, MPI_Reduce, MPI_Scan and the like.
class MpiStates {
 public:
  MpiStates() {
    MPI_Type_contiguous(sizeof(MpiState), MPI_BYTE, &datatype_);
    MPI_Type_commit(&datatype_);
    MPI_Op_create(&Fold, /*commute=*/0, &op_);
  }
  ~MpiStates() {
    MPI_Op_free(&op_);
    MPI_Type_free(&datatype_);
  }
  MpiStates(const MpiStates&) = delete;
  MpiStates& operator=(const MpiStates&) = delete;

  MPI_Datatype datatype() const { return datatype_; }
  MPI_Op op() const { return op_; }

 private:
  // `first`: of the lower ranks. The elements need not be aligned.
  static void Fold(void* first, void* then, int* count, MPI_Datatype* /*datatype*/) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(*count); ++i) {
      MpiState before, after;
      std::memcpy(&before, static_cast<const char*>(first) + i * sizeof(MpiState), sizeof(MpiState));
      char* const to = static_cast<char*>(then) + i * sizeof(MpiState);
      std::memcpy(&after, to, sizeof(MpiState));
      const MpiState both = before.Then(after);
      std::memcpy(to, &both, sizeof(MpiState));
    }
  }

  MPI_Datatype datatype_ = MPI_DATATYPE_NULL;
  MPI_Op op_ = MPI_OP_NULL;
};

// The results of the states of all ranks together, at every rank. Collective. `state`: Reply.state of this rank's part,
// which follows those of the ranks before; empty: this rank has no element; or why there is none. If a rank has an
// error, every rank returns that of the lowest such rank, with "rank N: " before its message. INVALID_ARGUMENT: no rank
// has a state; or as MergeStates. INTERNAL: MPI failed, if its error handler returns.
inline absl::StatusOr<MergeReply> AllreduceStates(const absl::StatusOr<std::string>& state, MPI_Comm comm,
                                                  bool return_state = false) {
  const MpiStates states;
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  MpiState mine;
  if (!state.ok()) {
    const std::string message = "rank " + std::to_string(rank) + ": " + std::string(state.status().message());
    mine = MpiState(absl::Status(state.status().code(), message));
  } else if (!state->empty()) {
    mine = MpiState(state);
  }
  MpiState whole;
  if (MPI_Allreduce(&mine, &whole, 1, states.datatype(), states.op(), comm) != MPI_SUCCESS) {
    return absl::InternalError("MPI_Allreduce failed");
  }
  absl::StatusOr<std::string> merged = whole.state();
  if (!merged.ok()) return merged.status();
  if (whole.empty()) return absl::InvalidArgumentError("states: got none; allowed: that of at least 1 rank");
  return MergeStates({*std::move(merged)}, {.return_state = return_state});
}

// The state of each rank, in their order; empty: the rank has no element. Collective. Errors as AllreduceStates, and
// RESOURCE_EXHAUSTED: all states together have 2 GiB.
inline absl::StatusOr<std::vector<std::string>> AllgatherStates(const absl::StatusOr<std::string>& state,
                                                                MPI_Comm comm) {
  int rank = 0, ranks = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &ranks);
  std::string mine =
      state.ok() ? *state : "rank " + std::to_string(rank) + ": " + std::string(state.status().message());
  const std::int64_t own[] = {static_cast<std::int64_t>(state.status().code()), static_cast<std::int64_t>(mine.size())};
  std::vector<std::int64_t> every(2 * static_cast<std::size_t>(ranks));
  if (MPI_Allgather(own, 2, MPI_INT64_T, every.data(), 2, MPI_INT64_T, comm) != MPI_SUCCESS) {
    return absl::InternalError("MPI_Allgather failed");
  }
  std::vector<int> sizes, offsets;
  std::int64_t bytes = 0;
  for (std::size_t i = 1; i < every.size(); i += 2) {
    offsets.push_back(static_cast<int>(bytes));
    sizes.push_back(static_cast<int>(every[i]));
    bytes += every[i];
    if (bytes > std::numeric_limits<int>::max()) {
      return absl::ResourceExhaustedError("states: got 2 GiB or more on all ranks; allowed: less");
    }
  }
  std::string all(static_cast<std::size_t>(bytes), '\0');
  if (MPI_Allgatherv(mine.data(), static_cast<int>(mine.size()), MPI_BYTE, all.data(), sizes.data(), offsets.data(),
                     MPI_BYTE, comm) != MPI_SUCCESS) {
    return absl::InternalError("MPI_Allgatherv failed");
  }
  std::vector<std::string> states;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    states.push_back(all.substr(static_cast<std::size_t>(offsets[i]), static_cast<std::size_t>(sizes[i])));
    if (every[2 * i] != 0) return absl::Status(static_cast<absl::StatusCode>(every[2 * i]), states.back());
  }
  return states;
}

// The results of an array whose parts are in the ranks, at every rank, with ops of the distribution (ops.h).
// Collective. `state_of`: the state of this rank's part for some ops, with return_state and without results; empty: it
// has no element. It is called once, and again for each round that quantiles of more than 16 bits take (merge.h). Every
// rank holds the states of all. Errors as AllgatherStates and MergeArrayStates. INVALID_ARGUMENT: no rank has a state.
template <class StateOf>
absl::StatusOr<MergeReply> AllreduceDistribution(const std::vector<std::string>& ops, bool return_state, MPI_Comm comm,
                                                 StateOf state_of) {
  const auto whole_of = [&](const std::vector<std::string>& asked) -> absl::StatusOr<std::string> {
    absl::StatusOr<std::vector<std::string>> states = AllgatherStates(state_of(asked), comm);
    if (!states.ok()) return states.status();
    std::erase(*states, "");
    absl::StatusOr<MergeArraysReply> merged = MergeArrayStates(*states, {.return_state = true, .results = false});
    if (!merged.ok()) return merged.status();
    return std::move(merged->state);
  };
  const absl::StatusOr<std::string> first = whole_of(ops);
  if (!first.ok()) return first.status();
  absl::StatusOr<QuantileRound> round = NextQuantileRound(*first);
  while (round.ok() && !round->ops.empty()) {
    const absl::StatusOr<std::string> answer = whole_of(round->ops);
    if (!answer.ok()) return answer.status();
    round = NextQuantileRound(round->state, *answer);
  }
  if (!round.ok()) return round.status();
  absl::StatusOr<MergeArraysReply> merged = MergeArrayStates({round->state}, {.return_state = return_state});
  if (!merged.ok()) return merged.status();
  MergeReply reply{.count = merged->count, .state = std::move(merged->state)};
  for (std::size_t i = 0; i < merged->results.size(); ++i) {
    ResultArray& result = merged->results[i];
    result.op = i < ops.size() ? ops[i] : result.op;  // as it was written
    if (!result.error.ok()) {
      reply.results.push_back({result.op, result.error});
    } else if (result.array.shape.empty()) {
      reply.results.push_back({result.op, result.array.At(0)});
    } else {
      reply.arrays.push_back(std::move(result));
    }
  }
  return reply;
}

// The results of the parts of all ranks together, at every rank. Collective. `array`: this rank's part, which follows
// those of the ranks before in C order; it may be empty. Each rank reduces its own by `client`, with the same ops and
// options; `client` is of one server, or of one near each rank. Errors as AllreduceStates. With ops of the distribution
// (ops.h): as AllreduceDistribution, exactly.
inline absl::StatusOr<MergeReply> Allreduce(Client& client, const ArrayView& array, const std::vector<std::string>& ops,
                                            const ReduceOptions& options, MPI_Comm comm) {
  const bool nothing = std::find(array.shape.begin(), array.shape.end(), 0) != array.shape.end();
  // Whether any rank has elements, and whether any asks for an op of the distribution: all then make the same calls.
  int any[] = {nothing ? 0 : 1, std::any_of(ops.begin(), ops.end(), IsOfDistribution) ? 1 : 0};
  if (MPI_Allreduce(MPI_IN_PLACE, any, 2, MPI_INT, MPI_MAX, comm) != MPI_SUCCESS) {
    return absl::InternalError("MPI_Allreduce failed");
  }
  if (any[0] == 0) {  // every rank asks about nothing, which some ops answer
    absl::StatusOr<Reply> reply = client.Reduce(array, ops, options);
    if (!reply.ok()) return reply.status();
    return MergeReply{.results = std::move(reply->results),
                      .arrays = std::move(reply->arrays),
                      .count = 0,
                      .state = std::move(reply->state)};
  }
  ReduceOptions own = options;
  own.return_state = true;
  own.results = false;
  const auto state_of = [&](const std::vector<std::string>& asked) -> absl::StatusOr<std::string> {
    if (nothing) return "";
    absl::StatusOr<Reply> reply = client.Reduce(array, asked, own);
    if (!reply.ok()) return reply.status();
    return std::move(reply->state);
  };
  if (any[1] != 0) return AllreduceDistribution(ops, options.return_state, comm, state_of);
  return AllreduceStates(state_of(ops), comm, options.return_state);
}

}  // namespace reduced::client

#endif  // REDUCED_MPI_H_
