// A rank of mpi_test.py, under mpirun: checks reduced/mpi.h against a server, and prints "right". Usage: mpi_ranks
// SERVER
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "reduced/client.h"
#include "reduced/mpi.h"

namespace reduced::client {
namespace {

int rank, ranks;

void Check(bool holds, const std::string& what) {
  if (holds) return;
  std::cerr << "rank " << rank << " of " << ranks << ": " << what << std::endl;
  MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

std::string TextOf(const std::vector<Result>& results) {
  std::string text;
  for (const Result& result : results) text += result.op + " " + result.value->Text() + ", ";
  return text;
}

// This rank's share of an array. Those of every second rank are empty.
template <class T>
std::span<const T> ShareOf(const std::vector<T>& whole) {
  const auto cut = [&](int i) {
    return i == ranks ? whole.size()
                      : whole.size() * static_cast<std::size_t>(i / 2 * 2) / static_cast<std::size_t>(ranks);
  };
  return std::span<const T>(whole).subspan(cut(rank), cut(rank + 1) - cut(rank));
}

std::string TextOf(const std::vector<ResultArray>& arrays) {
  std::string text;
  for (const ResultArray& result : arrays) {
    text += result.op + " " + result.array.dtype;
    for (std::int64_t i = 0; i < result.array.shape[0]; ++i) text.append(" ").append(result.array.At(i).Text());
  }
  return text;
}

template <class T>
void CheckWhole(Client& client, const std::vector<T>& whole, const std::vector<std::string>& ops,
                ReduceOptions options) {
  options.return_state = true;
  const auto right = client.Reduce(ArrayView::Of(whole), ops, options);
  const auto got = Allreduce(client, ArrayView::Of(ShareOf(whole)), ops, options, MPI_COMM_WORLD);
  Check(right.ok() && got.ok(), right.status().ToString() + got.status().ToString());
  Check(TextOf(got->results) == TextOf(right->results), TextOf(got->results) + " not " + TextOf(right->results));
  Check(TextOf(got->arrays) == TextOf(right->arrays), TextOf(got->arrays) + " not " + TextOf(right->arrays));
  Check(got->count == right->count, "another count");
  // The states of quantiles know more after their rounds than that of one read does.
  Check(std::any_of(ops.begin(), ops.end(), IsOfDistribution) || got->state == right->state, "another state");
}

// Ops of the distribution, alone and beside others: in one round, and in as many as quantiles of `T` take.
template <class T>
void CheckDistribution(Client& client, const std::vector<T>& whole, const ReduceOptions& options) {
  const std::string histogram = ops::Histogram(-1e6, 1e6, 10);
  CheckWhole(client, whole, {"median"}, options);
  CheckWhole(client, whole,
             {"sum", "quantile(0, 0.1, 0.5, 1)", "max", "median(method=lower)", histogram, ops::TopK(5),
              "argbottomk(3)", "distinct", "distinct_exact", "fingerprint", "argmax"},
             options);
}

void CheckError(const absl::StatusOr<MergeReply>& reply, absl::StatusCode code, const std::string& text) {
  Check(reply.status().code() == code && reply.status().message().find(text) != std::string::npos,
        reply.status().ToString());
}

void CheckAll(Client& client) {
  std::mt19937_64 random(7);
  std::vector<double> floats(100'000);
  for (double& each : floats) {
    each = std::ldexp(static_cast<double>(random() >> 11), static_cast<int>(random() % 1000) - 700) *
           (random() % 2 == 0 ? 1 : -1);
  }
  const std::vector<std::string> ops = {"sum", "mean", "std",    "min",    "max",   "l1",    "l2",
                                        "any", "all",  "argmin", "argmax", "range", "count", "nan_count"};
  CheckWhole(client, floats, ops, {.ddof = 1});
  floats[99'999] = floats[50'000] = std::numeric_limits<double>::quiet_NaN();
  CheckWhole(client, floats, ops, {.nan_policy = "omit"});
  std::vector<std::int64_t> integers(10'000);
  for (std::int64_t& each : integers) each = static_cast<std::int64_t>(random());
  CheckWhole(client, integers, {"sum", "prod", "bit_xor", "argmax"}, {.overflow_policy = "wrap"});
  CheckWhole(client, std::vector<float>(), {"sum", "count"}, {});
  CheckDistribution(client, floats, {.nan_policy = "omit"});
  CheckDistribution(client, floats, {});
  CheckDistribution(client, integers, {.overflow_policy = "wrap"});
  std::vector<float> few = {3, -1, 2, 2, 7};
  CheckDistribution(client, few, {});
  std::vector<std::int16_t> shorts(1000);
  for (std::int16_t& each : shorts) each = static_cast<std::int16_t>(random());
  CheckDistribution(client, shorts, {});
  CheckWhole(client, shorts, {"mode", "distinct", "quantile(0.25,0.75;method=nearest)"}, {});
  CheckWhole(client, std::vector<float>(), {"median", "histogram(0,1,2)", "distinct"}, {});

  // Errors are those of the lowest rank that has one, at every rank.
  const std::vector<float> one = {1};
  if (ranks > 1) {
    CheckError(Allreduce(client, ArrayView::Of(one), {rank == 0 ? "median" : "sum"}, {}, MPI_COMM_WORLD),
               absl::StatusCode::kInvalidArgument, "states[1]");
    CheckError(Allreduce(client, ArrayView::Of(one), {rank == 1 ? "mode" : "median"}, {}, MPI_COMM_WORLD),
               absl::StatusCode::kInvalidArgument, "rank 1: ");
  }
  CheckError(Allreduce(client, ArrayView::Of(one), {ops::TopK(1000)}, {}, MPI_COMM_WORLD),
             absl::StatusCode::kInvalidArgument, "topk");
  CheckError(Allreduce(client, ArrayView::Of(one), {rank == ranks - 1 ? "medium" : "sum"}, {}, MPI_COMM_WORLD),
             absl::StatusCode::kInvalidArgument, "rank " + std::to_string(ranks - 1) + ": op: got \"medium\"");
  const std::vector<float> nothing;
  CheckError(Allreduce(client, ArrayView::Of(nothing), {"min"}, {}, MPI_COMM_WORLD), absl::StatusCode::kInvalidArgument,
             "min");
  if (ranks > 1) {
    CheckError(Allreduce(client, ArrayView::Of(one), {rank == 0 ? "max" : "sum"}, {}, MPI_COMM_WORLD),
               absl::StatusCode::kInvalidArgument, "ops: got another than the first state has");
  }
  CheckError(AllreduceStates("", MPI_COMM_WORLD), absl::StatusCode::kInvalidArgument, "states: got none");
  CheckError(AllreduceStates("no state", MPI_COMM_WORLD), absl::StatusCode::kInvalidArgument, "that aren't a state");
  CheckError(AllreduceStates(std::string(5000, 'x'), MPI_COMM_WORLD), absl::StatusCode::kResourceExhausted,
             "state: got 5000 bytes; allowed: 4088");
  CheckError(AllreduceStates(absl::DataLossError(std::string(10'000, 'x')), MPI_COMM_WORLD),
             absl::StatusCode::kDataLoss, "rank 0: xxx");

  // Several states at a time, by MPI's own calls.
  const MpiStates states;
  const std::vector<std::int32_t> own = {rank};
  const auto mine = client.Reduce(ArrayView::Of(own), {"sum", "argmax"}, {.return_state = true});
  Check(mine.ok(), mine.status().ToString());
  const std::vector<MpiState> two(2, MpiState(mine->state));
  std::vector<MpiState> upto(2);
  MPI_Scan(two.data(), upto.data(), 2, states.datatype(), states.op(), MPI_COMM_WORLD);
  for (const MpiState& each : upto) {
    const auto merged = MergeStates({*each.state()});
    Check(merged.ok() && merged->Find("sum")->AsInt64() == rank * (rank + 1) / 2 &&
              merged->Find("argmax")->AsInt64() == rank,
          "a wrong scan");
  }
}

}  // namespace
}  // namespace reduced::client

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &reduced::client::rank);
  MPI_Comm_size(MPI_COMM_WORLD, &reduced::client::ranks);
  {
    const auto client = reduced::client::Client::Create({.server = argv[1], .timeout = absl::Seconds(30)});
    reduced::client::Check(client.ok(), client.status().ToString());
    reduced::client::CheckAll(**client);
  }
  std::cout << "right\n" << std::flush;
  MPI_Finalize();
}
