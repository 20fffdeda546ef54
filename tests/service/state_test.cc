// States: what Reduce and ReduceStream return with return_state, what Merge answers of them, and what it refuses.
#include <sys/resource.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "tests/service/chunk_stream.h"
#include "tests/service/test_server.h"
#include "tests/support/data.h"

namespace reduced::server {
namespace {

using ::testing::HasSubstr;

std::vector<v1::Op> OpsOf(DType dtype) {
  std::vector<v1::Op> ops;
  for (const OpRow& op : kOps) {
    if (Supports(op.op, dtype) && HasAccumulator(op.op)) ops.push_back(static_cast<v1::Op>(op.op));
  }
  return ops;
}

class StateTest : public ::testing::Test {
 protected:
  StateTest() : stub_(v1::Reduction::NewStub(server_.client().channel())) {}

  grpc::Status Merge(const v1::MergeRequest& request, v1::MergeResponse* response) {
    grpc::ClientContext context;
    SetContextDeadline(&context);
    return stub_->Merge(&context, request, response);
  }

  v1::ReduceResponse Reduce(const v1::ReduceRequest& request) {
    v1::ReduceResponse response;
    const grpc::Status status = server_.client().Reduce(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  TestServer server_;
  const std::unique_ptr<v1::Reduction::Stub> stub_;
};

v1::ReduceRequest RequestFor(DType dtype, const test::Bytes& bytes, std::int64_t first, std::int64_t count,
                             v1::Precision precision) {
  v1::ReduceRequest request;
  request.mutable_array()->set_dtype(static_cast<v1::DType>(dtype));
  request.mutable_array()->add_shape(count);
  const std::int64_t width = RowOf(dtype).bytes;
  request.set_inline_data(bytes.data() + first * width, static_cast<std::size_t>(count * width));
  for (const v1::Op op : OpsOf(dtype)) request.add_ops(op);
  request.mutable_options()->set_precision(precision);
  request.mutable_options()->set_overflow_policy(v1::OVERFLOW_POLICY_WRAP);
  request.set_return_state(true);
  return request;
}

// Whether float ops of this request are rounded on the way, so that the cuts show in the last places.
bool Rounds(v1::Op op, DType dtype, v1::Precision precision) {
  const Accumulator accumulator = RowOf(*OpFromNumber(op)).accumulator;
  if (accumulator == Accumulator::kProduct) return RowOf(dtype).is_float;
  const bool sums = accumulator == Accumulator::kSum || accumulator == Accumulator::kAbsSum ||
                    accumulator == Accumulator::kSumSquares || accumulator == Accumulator::kMoments;
  return sums && RowOf(dtype).is_float && precision == v1::PRECISION_F64;
}

TEST_F(StateTest, OfPartsMergeIntoTheAnswersOfTheWhole) {
  for (const DTypeRow& row : kDTypes) {
    for (const v1::Precision precision : {v1::PRECISION_F64, v1::PRECISION_EXACT}) {
      for (const test::DataKindRow& kind : test::kDataKinds) {
        if (!test::Applies(kind, row.dtype)) continue;
        constexpr std::int64_t kCount = 2000;
        const test::Bytes bytes = test::MakeData(kind.kind, row.dtype, kCount, 5);
        const v1::ReduceResponse whole = Reduce(RequestFor(row.dtype, bytes, 0, kCount, precision));
        ASSERT_TRUE(whole.has_state());
        v1::MergeRequest merge;
        merge.set_return_state(true);
        std::int64_t first = 0;
        for (const std::int64_t end : {std::int64_t{1}, std::int64_t{700}, std::int64_t{1999}, kCount}) {
          v1::ReduceRequest part = RequestFor(row.dtype, bytes, first, end - first, precision);
          *merge.add_states() = Reduce(part).state();
          first = end;
        }
        v1::MergeResponse merged;
        const grpc::Status status = Merge(merge, &merged);
        ASSERT_TRUE(status.ok()) << status.error_message();
        EXPECT_EQ(merged.count(), kCount);
        ASSERT_EQ(merged.results_size(), whole.results_size());
        for (int i = 0; i < whole.results_size(); ++i) {
          const v1::Op op = whole.results(i).op();
          EXPECT_EQ(merged.results(i).op(), op);
          if (Rounds(op, row.dtype, precision)) continue;
          EXPECT_EQ(merged.results(i).value().SerializeAsString(), whole.results(i).value().SerializeAsString())
              << row.name << " " << kind.name << ", " << v1::Op_Name(op);
        }
        if (precision == v1::PRECISION_EXACT && RowOf(row.dtype).is_float) {
          v1::State without_product = merged.state();
          *without_product.mutable_product() = whole.state().product();
          EXPECT_EQ(without_product.SerializeAsString(), whole.state().SerializeAsString()) << kind.name;
        }
        // Merged states merge: ((a b) c) d.
        v1::MergeRequest again;
        *again.add_states() = merged.state();
        v1::MergeResponse same;
        ASSERT_TRUE(Merge(again, &same).ok());
        for (int i = 0; i < same.results_size(); ++i) {
          EXPECT_EQ(same.results(i).SerializeAsString(), merged.results(i).SerializeAsString());
        }
        EXPECT_FALSE(same.has_state());
      }
    }
  }
}

TEST_F(StateTest, OfAStreamIsThatOfOneMessage) {
  const test::Bytes bytes = test::MakeData(test::DataKind::kFull, DType::kF64, 50'000, 8);
  v1::ReduceRequest request = RequestFor(DType::kF64, bytes, 0, 50'000, v1::PRECISION_EXACT);
  request.mutable_ops()->Clear();
  for (const v1::Op op : {v1::OP_SUM, v1::OP_VAR, v1::OP_L1, v1::OP_ARGMAX}) request.add_ops(op);
  const v1::ReduceResponse whole = Reduce(request);
  const std::string elements = request.inline_data();
  request.clear_inline_data();
  ReduceStreamCall stream(server_.client());
  stream.Header(request);
  for (std::size_t i = 0; i < elements.size(); i += 100'001) stream.Chunk(elements.substr(i, 100'001));
  ASSERT_TRUE(stream.End().ok());
  EXPECT_EQ(stream.response().state().SerializeAsString(), whole.state().SerializeAsString());
}

TEST_F(StateTest, IsNotReturnedUnlessAskedFor) {
  EXPECT_FALSE(Reduce(RequestOf<float>(v1::DTYPE_F32, {1}, {v1::OP_SUM})).has_state());
}

// A part needs no results by itself.
TEST_F(StateTest, PartsWithoutResults) {
  v1::ReduceRequest nans = RequestOf<float>(v1::DTYPE_F32, {NAN, NAN}, {v1::OP_ARGMIN, v1::OP_SUM});
  nans.mutable_options()->set_nan_policy(v1::NAN_POLICY_OMIT);
  v1::ReduceRequest numbers = RequestOf<float>(v1::DTYPE_F32, {5, NAN, 3}, {v1::OP_ARGMIN, v1::OP_SUM});
  numbers.mutable_options()->set_nan_policy(v1::NAN_POLICY_OMIT);
  v1::ReduceRequest large = RequestOf<std::int64_t>(v1::DTYPE_I64, {INT64_MAX, 2}, {v1::OP_SUM});
  v1::ReduceRequest small = RequestOf<std::int64_t>(v1::DTYPE_I64, {-5}, {v1::OP_SUM});
  v1::MergeRequest of_floats;
  v1::MergeRequest of_integers;
  for (v1::ReduceRequest* request : {&nans, &numbers, &large, &small}) {
    request->set_return_state(true);
    v1::ReduceResponse response;
    const grpc::StatusCode alone = server_.client().Reduce(*request, &response).error_code();
    EXPECT_EQ(alone, request == &nans    ? grpc::StatusCode::INVALID_ARGUMENT
                     : request == &large ? grpc::StatusCode::OUT_OF_RANGE
                                         : grpc::StatusCode::OK);
    request->set_omit_results(true);
    response = Reduce(*request);
    EXPECT_TRUE(response.results().empty());
    *(request == &nans || request == &numbers ? of_floats : of_integers).add_states() = response.state();
  }
  v1::MergeResponse merged;
  ASSERT_TRUE(Merge(of_floats, &merged).ok());
  EXPECT_EQ(merged.results(0).value().u(), 4U);
  EXPECT_EQ(merged.results(1).value().f(), 8);
  ASSERT_TRUE(Merge(of_integers, &merged).ok());
  EXPECT_EQ(merged.results(0).value().i(), INT64_MAX - 3);
  for (v1::MergeRequest* request : {&of_floats, &of_integers}) {  // nor do several parts
    v1::MergeRequest first;
    *first.add_states() = request->states(0);
    *first.add_states() = request->states(0);
    first.set_return_state(true);
    EXPECT_FALSE(Merge(first, &merged).ok());
    first.set_omit_results(true);
    ASSERT_TRUE(Merge(first, &merged).ok());
    EXPECT_TRUE(merged.results().empty());
    EXPECT_EQ(merged.count(), 4);
    EXPECT_EQ(merged.state().count(), 4);
  }

  small.set_return_state(false);
  v1::ReduceResponse response;
  const grpc::Status status = server_.client().Reduce(small, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("omit_results: got true without return_state"));
}

// The format is public: these bytes are for good.
TEST_F(StateTest, IsEncodedAsDocumented) {
  v1::ReduceRequest request =
      RequestOf<double>(v1::DTYPE_F64, {0x1p-1074, 0x1p-1073, -0x1p-1066, -INFINITY}, {v1::OP_SUM, v1::OP_ARGMIN});
  request.mutable_options()->set_precision(v1::PRECISION_EXACT);
  request.set_return_state(true);
  const v1::State state = Reduce(request).state();
  EXPECT_EQ(state.version(), 1U);
  EXPECT_EQ(state.dtype(), v1::DTYPE_F64);
  EXPECT_EQ(state.count(), 4);
  EXPECT_EQ(state.sum().fixed_point(), std::string("\x03\xff", 2));  // 1 + 2 - 256
  EXPECT_EQ(state.non_finite().negative_infinity(), 1);
  EXPECT_TRUE(state.non_finite().not_only_negative_zeros());
  EXPECT_EQ(state.extrema().min_index(), 3);
  EXPECT_EQ(state.extrema().min_key(), ~std::int64_t{0x7ff0000000000000});
  EXPECT_FALSE(state.extrema().has_nan_index());
  EXPECT_FALSE(state.has_counts());
  v1::ReduceRequest integers = RequestOf<std::int8_t>(v1::DTYPE_I8, {-100, -100}, {v1::OP_SUM, v1::OP_L1});
  integers.set_return_state(true);
  const v1::State sums = Reduce(integers).state();
  EXPECT_EQ(sums.sum().integer(), std::string("\x38\xff", 2));
  EXPECT_EQ(sums.abs_sum().integer(), std::string("\xc8\x00", 2));
}

// Of integers, and of other ops, there is but one.
TEST_F(StateTest, PrecisionDoesNotMatterWhereItMakesNoDifference) {
  v1::ReduceRequest request = RequestOf<std::int32_t>(v1::DTYPE_I32, {1, 2}, {v1::OP_SUM, v1::OP_VAR});
  request.set_return_state(true);
  v1::MergeRequest merge;
  for (const v1::Precision precision : {v1::PRECISION_DEFAULT, v1::PRECISION_F64, v1::PRECISION_EXACT}) {
    request.mutable_options()->set_precision(precision);
    *merge.add_states() = Reduce(request).state();
    EXPECT_EQ(merge.states().rbegin()->precision(), v1::PRECISION_F64);
  }
  merge.mutable_states(1)->set_precision(v1::PRECISION_EXACT);
  v1::MergeResponse response;
  ASSERT_TRUE(Merge(merge, &response).ok());
  EXPECT_EQ(response.results(0).value().i(), 9);
}

// Exact sums know of the NaNs by themselves.
TEST_F(StateTest, OmittedNansAreCountedOnce) {
  v1::ReduceRequest request = RequestOf<float>(v1::DTYPE_F32, {1, NAN, 2}, {v1::OP_MEAN});
  request.mutable_options()->set_nan_policy(v1::NAN_POLICY_OMIT);
  request.set_return_state(true);
  v1::MergeRequest merge;
  *merge.add_states() = Reduce(request).state();
  EXPECT_FALSE(merge.states(0).has_counts());
  EXPECT_EQ(merge.states(0).non_finite().nan(), 1);
  *merge.add_states() = merge.states(0);
  v1::MergeResponse response;
  ASSERT_TRUE(Merge(merge, &response).ok());
  EXPECT_EQ(response.results(0).value().f(), 1.5);
  request.add_ops(v1::OP_MAX);
  EXPECT_EQ(Reduce(request).state().counts().nan(), 1);
}

TEST_F(StateTest, MalformedAndMismatchedOnesAreRefused) {
  v1::ReduceRequest request = RequestOf<float>(
      v1::DTYPE_F32, {1, 2, 3}, {v1::OP_SUM, v1::OP_VAR, v1::OP_L1, v1::OP_MIN, v1::OP_NAN_COUNT, v1::OP_PROD});
  request.set_return_state(true);
  request.mutable_options()->set_precision(v1::PRECISION_F64);
  const v1::State plain = Reduce(request).state();
  request.mutable_options()->set_precision(v1::PRECISION_EXACT);
  const v1::State exact = Reduce(request).state();
  struct Bad {
    const char* what;
    const v1::State& of;
    std::function<void(v1::State*)> spoil;
    const char* message;
  };
  const std::vector<Bad> all = {
      {"version", plain, [](v1::State* s) { s->set_version(2); }, "version: got 2"},
      {"dtype", plain, [](v1::State* s) { s->set_dtype(static_cast<v1::DType>(99)); }, "dtype: got 99"},
      {"no op", plain, [](v1::State* s) { s->clear_ops(); }, "ops: got 0"},
      {"op", plain, [](v1::State* s) { s->set_ops(0, static_cast<v1::Op>(77)); }, "ops: got 77"},
      {"op that floats lack", plain, [](v1::State* s) { s->set_ops(0, v1::OP_BIT_OR); }, "bit_or"},
      {"precision", plain, [](v1::State* s) { s->set_precision(v1::PRECISION_DEFAULT); }, "precision"},
      {"policy", plain, [](v1::State* s) { s->set_nan_policy(static_cast<v1::NanPolicy>(3)); }, "nan_policy"},
      {"ddof", plain, [](v1::State* s) { s->set_ddof(-1); }, "ddof: got -1"},
      {"count", plain, [](v1::State* s) { s->set_count(-1); }, "count: got -1"},
      {"too many", plain, [](v1::State* s) { s->set_count(INT64_MAX); }, "count: got 9223372036854775807"},
      {"no sum", plain, [](v1::State* s) { s->clear_sum(); }, "sum: got none"},
      {"kind of sum", plain, [](v1::State* s) { s->mutable_sum()->set_integer("\1"); },
       "sum: got integer; allowed: f64"},
      {"no extrema", plain, [](v1::State* s) { s->clear_extrema(); }, "extrema: got none"},
      {"index", plain, [](v1::State* s) { s->mutable_extrema()->set_min_index(3); }, "min_index: got 3"},
      {"one index", plain, [](v1::State* s) { s->mutable_extrema()->clear_max_index(); }, "only one"},
      {"key", plain, [](v1::State* s) { s->mutable_extrema()->set_max_key(INT64_MAX); }, "keys"},
      {"counts", plain, [](v1::State* s) { s->mutable_counts()->set_nonzero(4); }, "nonzero: got 4"},
      {"moments", plain, [](v1::State* s) { s->mutable_moments()->set_count(-4); }, "moments.count: got -4"},
      {"exponent", plain, [](v1::State* s) { s->mutable_product()->set_exponent(INT64_MAX); }, "product.exponent"},
      {"long number", exact, [](v1::State* s) { s->mutable_sum()->set_fixed_point(std::string(273, 'x')); },
       "273 bytes"},
      {"large number", exact, [](v1::State* s) { s->mutable_sum()->set_fixed_point(std::string(270, 'x')); },
       "what 3 elements can sum to"},
      {"negative magnitude", exact, [](v1::State* s) { s->mutable_abs_sum()->set_fixed_point("\xff"); }, "negative"},
      {"kind of exact sum", exact, [](v1::State* s) { s->mutable_sum()->set_f64(1); }, "fixed_point"},
      {"infinities", exact, [](v1::State* s) { s->mutable_non_finite()->set_positive_infinity(4); },
       "positive_infinity: got 4"},
      {"no squares", exact, [](v1::State* s) { s->clear_sum_squares(); }, "sum_squares: got none"},
      {"no counts of what isn't finite", exact, [](v1::State* s) { s->clear_non_finite(); }, "non_finite: got none"},
  };
  for (const Bad& bad : all) {
    v1::MergeRequest merge;
    *merge.add_states() = bad.of;
    *merge.add_states() = bad.of;
    v1::MergeResponse response;
    ASSERT_TRUE(Merge(merge, &response).ok());
    bad.spoil(merge.mutable_states(1));
    const grpc::Status status = Merge(merge, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << bad.what;
    EXPECT_THAT(status.error_message(), HasSubstr("states[1]: ")) << bad.what;
    EXPECT_THAT(status.error_message(), HasSubstr(bad.message)) << bad.what;
  }
  for (const auto& [spoil, field] : std::vector<std::pair<std::function<void(v1::ReduceRequest*)>, const char*>>{
           {[](v1::ReduceRequest* r) {
              const v1::ReduceRequest before = *r;
              *r = RequestOf<double>(v1::DTYPE_F64, {1}, {});
              *r->mutable_ops() = before.ops();
              *r->mutable_options() = before.options();
            },
            "dtype"},
           {[](v1::ReduceRequest* r) { r->mutable_ops()->RemoveLast(); }, "ops"},
           {[](v1::ReduceRequest* r) { r->mutable_options()->set_nan_policy(v1::NAN_POLICY_OMIT); }, "nan_policy"},
           {[](v1::ReduceRequest* r) { r->mutable_options()->set_ddof(1); }, "ddof"},
           {[](v1::ReduceRequest* r) { r->mutable_options()->set_precision(v1::PRECISION_F64); }, "precision"}}) {
    v1::ReduceRequest other = request;
    spoil(&other);
    other.set_return_state(true);
    v1::MergeRequest merge;
    *merge.add_states() = exact;
    *merge.add_states() = Reduce(other).state();
    v1::MergeResponse response;
    const grpc::Status status = Merge(merge, &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field;
    EXPECT_THAT(status.error_message(), HasSubstr(std::string(field) + ": got another than the first state has"))
        << field;
  }
  v1::MergeResponse response;
  EXPECT_EQ(Merge({}, &response).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// A Merge whose request is these bytes.
grpc::Status MergeBytes(const TestClient& client, const std::string& bytes) {
  const grpc::Slice slice(bytes.data(), bytes.size(), grpc::Slice::STATIC_SLICE);
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer response;
  grpc::ClientContext context;
  SetContextDeadline(&context);
  grpc::GenericStub stub(client.channel());
  grpc::Status status;
  absl::Notification done;
  stub.UnaryCall(&context, "/reduced.v1.Reduction/Merge", {}, &request, &response, [&](grpc::Status result) {
    status = std::move(result);
    done.Notify();
  });
  done.WaitForNotification();
  return status;
}

std::int64_t PeakBytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss << 10;
}

TEST_F(StateTest, MillionsOfEmptyStatesTakeNoMemory) {
  std::string states;  // 63 MiB of them: tag and length, 0
  while (states.size() < 63 << 20) states.append("\x0a\x00", 2);
  const std::int64_t before = PeakBytes();
  const grpc::Status status = MergeBytes(server_.client(), states);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("states[0]: version: got 0"));
  EXPECT_LT(PeakBytes() - before, 300 << 20);  // the message, on both sides
}

TEST_F(StateTest, BytesThatAreNoMergeRequestAreAnErrorOfTheCaller) {
  for (const std::string bytes : {"\xff", "\x0a\x05\x08", "\x0a\xff\xff\xff\xff\x0f", "\x10", "\x0b"}) {
    const grpc::Status status = MergeBytes(server_.client(), bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << absl::CHexEscape(bytes);
    EXPECT_THAT(status.error_message(), HasSubstr("message: got bytes that are not a MergeRequest"));
  }
  EXPECT_THAT(MergeBytes(server_.client(), "").error_message(), HasSubstr("states: got none"));
}

}  // namespace
}  // namespace reduced::server
