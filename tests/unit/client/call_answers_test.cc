// Answers of a broken or hostile server: each is one error that names the field, never a result.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "proto/codec/arrays_state.h"
#include "reduced/client.h"
#include "tests/unit/client/fake_server.h"

namespace reduced::client {
namespace {

using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class AnswersTest : public CallTest {
 protected:
  void SetUp() override {
    CallTest::SetUp();
    service_.on_reduce = [](const auto&, auto*) { return grpc::Status::OK; };
    service_.on_stream = [](const auto&) { return grpc::Status::OK; };
    service_.on_put = [](const auto&) { return grpc::Status::OK; };
    service_.on_delete = [](const auto&) { return grpc::Status::OK; };
  }

  void ExpectWrong(const absl::Status& status, const std::string& message) const {
    EXPECT_EQ(status, absl::InternalError(absl::StrCat("the answer of ", address_, " is wrong: ", message)));
  }
};

struct WrongReduce {
  std::string message;
  std::function<void(v1::ReduceResponse*)> spoil;
};

// What is wrong for min, argmax and mean of three f32, whatever the source.
std::vector<WrongReduce> WrongReduces() {
  const auto value = [](v1::ReduceResponse* answer, int i) { return answer->mutable_results(i)->mutable_value(); };
  return {
      {"results: got 0; allowed: 3, one for each op", [](auto* answer) { answer->clear_results(); }},
      {"results: got 2; allowed: 3, one for each op", [](auto* answer) { answer->mutable_results()->RemoveLast(); }},
      {"results: got 4; allowed: 3, one for each op", [](auto* answer) { answer->add_results(); }},
      {"results[0].op: got argmax; allowed: min", [](auto* answer) { answer->mutable_results()->SwapElements(0, 1); }},
      {"results[2].op: got 99; allowed: mean",
       [](auto* answer) { answer->mutable_results(2)->set_op(static_cast<v1::Op>(99)); }},
      {"results[0].value.dtype: got f64; allowed: f32",
       [=](auto* answer) { value(answer, 0)->set_dtype(v1::DTYPE_F64); }},
      {"results[1].value.dtype: got unspecified; allowed: bool, i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, "
       "f64, f8_e4m3fn, f8_e5m2, f8_e8m0fnu",
       [](auto* answer) { answer->mutable_results(1)->clear_value(); }},
      {"results[2].value: got none; allowed: f, the member of f64", [=](auto* answer) { value(answer, 2)->clear_f(); }},
      {"results[1].value: got i; allowed: u, the member of u64", [=](auto* answer) { value(answer, 1)->set_i(1); }},
      {"results[1].value: got 3; allowed: indexes below 3", [=](auto* answer) { value(answer, 1)->set_u(3); }},
      {"results[0].value: got dtype: DTYPE_F32 f: 0.1; allowed: values of f32",
       [=](auto* answer) { value(answer, 0)->set_f(0.1); }},
      {"count: got -1; allowed: 3", [](auto* answer) { answer->set_count(-1); }},
      {"count: got 4; allowed: 3", [](auto* answer) { answer->set_count(4); }},
      {"execution.engine: got auto; allowed: auto, cpu, cuda", [](auto* answer) { answer->clear_execution(); }},
      {"execution.precision: got default; allowed: f64, exact",
       [](auto* answer) { answer->mutable_execution()->clear_precision(); }},
      {"execution.device: got none; allowed: a name",
       [](auto* answer) { answer->mutable_execution()->clear_device(); }},
      {"execution.pipeline: got none; allowed: a name",
       [](auto* answer) { answer->mutable_execution()->clear_pipeline(); }},
      {"timing.bytes: got 11; allowed: 12", [](auto* answer) { answer->mutable_timing()->set_bytes(11); }},
      {"timing.kernel_us: got -1; allowed: finite numbers from 0",
       [](auto* answer) { answer->mutable_timing()->set_kernel_us(-1); }},
      {"timing.total_us: got nan; allowed: finite numbers from 0",
       [](auto* answer) { answer->mutable_timing()->set_total_us(kNan); }},
      {"timing.kernel_gb_per_s: got inf; allowed: finite numbers from 0",
       [](auto* answer) { answer->mutable_timing()->set_kernel_gb_per_s(std::numeric_limits<double>::infinity()); }},
      {"state: got one; allowed: none, because none was asked for", [](auto* answer) { answer->mutable_state(); }},
  };
}

TEST_F(AnswersTest, AReduceThatIsWrong) {
  const std::vector<std::string> ops = {"min", "argmax", "mean"};
  ASSERT_TRUE(client_->Reduce(array_, ops).ok());
  for (const WrongReduce& wrong : WrongReduces()) {
    service_.spoil = wrong.spoil;
    for (const char* via : {"inline", "stream"}) {
      ExpectWrong(client_->Reduce(array_, ops, {.via = via}).status(), wrong.message);
      absl::Notification finished;
      absl::Status status;
      client_->ReduceAsync(array_, ops, {.via = via}, [&](const absl::StatusOr<Reply>& reply) {
        status = reply.status();
        finished.Notify();
      });
      ASSERT_TRUE(finished.WaitForNotificationWithTimeout(kLong));
      ExpectWrong(status, wrong.message);
    }
  }
}

TEST_F(AnswersTest, AReduceOnAnotherEngineThanWasAsked) {
  const struct {
    ReduceOptions options;
    std::function<void(v1::Execution*)> spoil;
    std::string message;
  } kCases[] = {
      {{.engine = "cpu"}, [](auto* ran) { ran->set_engine(v1::ENGINE_CUDA); }, "engine: got cuda; allowed: cpu"},
      {{.device = "cpu"}, [](auto* ran) { ran->set_device("cuda:0"); }, "device: got 'cuda:0'; allowed: 'cpu'"},
      {{.pipeline = "p"}, [](auto* ran) { ran->set_pipeline("q"); }, "pipeline: got 'q'; allowed: 'p'"},
      {{.precision = "f64"},
       [](auto* ran) { ran->set_precision(v1::PRECISION_EXACT); },
       "precision: got exact; allowed: f64"},
  };
  for (const auto& [options, spoil, message] : kCases) {
    service_.spoil = [](auto*) {};
    EXPECT_TRUE(client_->Reduce(array_, {"sum"}, options).ok()) << message;
    service_.spoil = [&spoil = spoil](v1::ReduceResponse* answer) { spoil(answer->mutable_execution()); };
    ExpectWrong(client_->Reduce(array_, {"sum"}, options).status(), absl::StrCat("execution.", message));
  }
}

TEST_F(AnswersTest, IntegersBeyondTheirTypeAndCountsBeyondTheArray) {
  const ArrayView small{elements_.data(), "i8", {3}};
  const auto wrong = [&](const std::string& op, const std::function<void(v1::Value*)>& spoil, const std::string& why) {
    service_.spoil = [&](v1::ReduceResponse* answer) { spoil(answer->mutable_results(0)->mutable_value()); };
    ExpectWrong(client_->Reduce(small, {op}).status(), absl::StrCat("results[0].value: got ", why));
  };
  wrong(
      "max", [](auto* value) { value->set_i(128); }, "dtype: DTYPE_I8 i: 128; allowed: values of i8");
  wrong(
      "min", [](auto* value) { value->set_i(-129); }, "dtype: DTYPE_I8 i: -129; allowed: values of i8");
  wrong(
      "count", [](auto* value) { value->set_u(4); }, "4; allowed: 0 to 3");
  wrong(
      "nan_count", [](auto* value) { value->set_u(4); }, "4; allowed: 0 to 3");
  wrong(
      "var", [](auto* value) { value->set_f(-1.25); }, "-1.25; allowed: 0, positive numbers, NaN");
}

TEST_F(AnswersTest, AStateThatIsNone) {
  const ArrayView array{elements_.data(), "i32", {3}};
  const auto reduce = [&] { return client_->Reduce(array, {"sum"}, {.return_state = true}).status(); };
  const auto spoil = [&](const std::function<void(v1::State*)>& change) {
    service_.spoil = [change](v1::ReduceResponse* answer) {
      *answer->mutable_state() = SumState(3);
      change(answer->mutable_state());
    };
  };
  spoil([](auto*) {});
  EXPECT_TRUE(reduce().ok()) << reduce();
  service_.spoil = [](auto*) {};
  ExpectWrong(reduce(), "state: got none; allowed: a state");
  const ReduceOptions no_results{.return_state = true, .results = false};
  service_.spoil = [](auto* answer) {
    *answer->mutable_state() = SumState(3);
    answer->add_results();
  };
  ExpectWrong(client_->Reduce(array, {"sum"}, no_results).status(),
              "results: got 1; allowed: none, because they were not wanted");
  spoil([](auto* state) { state->set_count(2); });
  ExpectWrong(reduce(), "state.count: got 2; allowed: 3");
  spoil([](auto* state) { state->set_dtype(v1::DTYPE_I16); });
  ExpectWrong(reduce(), "state.dtype: got i16; allowed: i32");
  spoil([](auto* state) { state->set_ops(0, v1::OP_MEAN); });
  ExpectWrong(reduce(), "state.ops: got others; allowed: the ops of the request");
  const std::function<void(v1::State*)> others[] = {
      [](auto* state) { state->set_ddof(1); },
      [](auto* state) { state->set_nan_policy(v1::NAN_POLICY_OMIT); },
      [](auto* state) { state->set_overflow_policy(v1::OVERFLOW_POLICY_WRAP); },
  };
  for (const auto& other : others) {
    spoil(other);
    ExpectWrong(reduce(), "state: got other policies or ddof; allowed: those of the request");
  }
  // A sum of 2^60 of three i32, which no array has.
  spoil([](auto* state) { state->mutable_sum()->set_integer(std::string(7, '\0') + '\x10'); });
  const absl::Status contradiction = reduce();
  EXPECT_TRUE(absl::IsInternal(contradiction)) << contradiction;
  EXPECT_THAT(std::string(contradiction.message()), HasSubstr("is wrong: state.sum"));
}

TEST_F(AnswersTest, AMergeThatIsWrong) {
  const std::vector<std::string> states = {SumState(3).SerializeAsString(), SumState(4).SerializeAsString()};
  const auto merge = [&](const std::function<void(v1::MergeResponse*)>& spoil) {
    service_.on_merge = [spoil](const v1::MergeRequest&, v1::MergeResponse* answer) {
      answer->set_count(7);
      answer->add_results()->set_op(v1::OP_SUM);
      SetZero(DType::kI64, answer->mutable_results(0)->mutable_value());
      spoil(answer);
      return grpc::Status::OK;
    };
    return client_->Merge(states).status();
  };
  EXPECT_TRUE(merge([](auto*) {}).ok());
  ExpectWrong(merge([](auto* answer) { answer->Clear(); }), "count: got 0; allowed: 7");
  ExpectWrong(merge([](auto* answer) { answer->clear_results(); }), "results: got 0; allowed: 1, one for each op");
  ExpectWrong(merge([](auto* answer) { SetZero(DType::kF64, answer->mutable_results(0)->mutable_value()); }),
              "results[0].value.dtype: got f64; allowed: i64");
}

TEST_F(AnswersTest, AnArrayThatIsNotTheOnePut) {
  const struct {
    std::string message;
    std::function<void(v1::ArrayInfo*)> spoil;
  } kCases[] = {
      {"id: got ''; allowed: 1 to 64 letters, digits, - and _", [](auto* array) { array->clear_id(); }},
      {"id: got '\\x1b[2J'; allowed: 1 to 64 letters, digits, - and _", [](auto* array) { array->set_id("\x1b[2J"); }},
      {"array.dtype: got none; allowed: a dtype", [](auto* array) { array->mutable_array()->clear_dtype(); }},
      {"bytes: got 13; allowed: 12", [](auto* array) { array->set_bytes(13); }},
      {"array.shape: got (3, 1); allowed: (3)", [](auto* array) { array->mutable_array()->add_shape(1); }},
      {"device: got none; allowed: a name", [](auto* array) { array->clear_device(); }},
      {"device: got 'cuda:0'; allowed: 'cpu'", [](auto* array) { array->set_device("cuda:0"); }},
      {"owner: got 'you'; allowed: 'me'", [](auto* array) { array->set_owner("you"); }},
      {"users: got -1; allowed: finite numbers from 0", [](auto* array) { array->set_users(-1); }},
  };
  const PutOptions options{.device = "cpu", .owner = "me"};
  ASSERT_TRUE(client_->Put(array_, options).ok());
  for (const auto& [message, spoil] : kCases) {
    service_.spoil_put = spoil;
    ExpectWrong(client_->Put(array_, options).status(), absl::StrCat("array.", message));
  }
}

TEST_F(AnswersTest, AListThatIsWrong) {
  v1::ArrayInfo good;
  v1::PutArrayHeader header;
  header.mutable_array()->set_dtype(v1::DTYPE_F32);
  header.mutable_array()->add_shape(3);
  header.set_owner("me");
  Complete(header, &good);
  const auto list = [&](const std::function<void(v1::ArrayInfo*)>& spoil) {
    service_.on_list = [&good, spoil](const v1::ListArraysRequest&, v1::ListArraysResponse* answer) {
      *answer->add_arrays() = good;
      *answer->add_arrays() = good;
      answer->mutable_arrays(1)->set_id("another");
      spoil(answer->mutable_arrays(1));
      return grpc::Status::OK;
    };
    return client_->ListArrays("me").status();
  };
  EXPECT_TRUE(list([](auto*) {}).ok());
  ExpectWrong(list([&](auto* array) { array->set_id(good.id()); }),
              absl::StrCat("arrays[1].id: got '", good.id(), "'; allowed: each id once"));
  ExpectWrong(list([](auto* array) { array->set_owner("you"); }), "arrays[1].owner: got 'you'; allowed: 'me'");
  ExpectWrong(list([](auto* array) { array->mutable_array()->set_shape(0, -1); }),
              "arrays[1].array.shape: got (-1); allowed: dimensions of 0 and more");
  EXPECT_TRUE(list([](auto* array) { array->mutable_array()->set_dtype(static_cast<v1::DType>(99)); }).ok());
}

TEST_F(AnswersTest, AServerThatDescribesItselfWrongly) {
  const struct {
    std::string message;
    std::function<void(v1::GetServerInfoResponse*)> spoil;
  } kCases[] = {
      {"version: got none; allowed: a name", [](auto* info) { info->clear_version(); }},
      {"uptime_ms: got -1; allowed: finite numbers from 0", [](auto* info) { info->set_uptime_ms(-1); }},
      {"limits.max_ops: got -1; allowed: finite numbers from 0",
       [](auto* info) { info->mutable_limits()->set_max_ops(-1); }},
      {"usage.arrays: got -5; allowed: finite numbers from 0",
       [](auto* info) { info->mutable_usage()->set_arrays(-5); }},
      {"devices[0].name: got none; allowed: a name", [](auto* info) { info->mutable_devices(0)->clear_name(); }},
      {"devices[0].fixed_us: got nan; allowed: finite numbers from 0",
       [](auto* info) { info->mutable_devices(0)->set_fixed_us(kNan); }},
      {"pipelines[1].name: got none; allowed: a name",
       [](auto* info) { info->add_pipelines()->set_engine(v1::ENGINE_CPU); }},
      {"pipelines[0].block_sizes: got 0; allowed: 1 and more",
       [](auto* info) { info->mutable_pipelines(0)->add_block_sizes(0); }},
      {"ops[1].name: got none; allowed: a name", [](auto* info) { info->add_ops(); }},
  };
  for (const auto& [message, spoil] : kCases) {
    service_.spoil_info = spoil;
    ExpectWrong(client_->GetServerInfo().status(), message);
    ExpectWrong(client_->OpenSession().status(), message);
  }
}

TEST_F(AnswersTest, ALadderThatIsWrong) {
  using Replies = std::vector<v1::LadderReply>;
  const auto ladder = [&](const std::function<void(Replies*)>& spoil) {
    service_.on_ladder = [spoil](const v1::LadderRequest&, Replies* replies) {
      replies->resize(3);
      v1::LadderStart* const start = (*replies)[0].mutable_start();
      start->set_bytes(12);
      start->set_steps(2);
      SetZero(DType::kI64, start->mutable_expected());
      for (std::size_t i : {1, 2}) {
        v1::LadderStep* const step = (*replies)[i].mutable_step();
        step->set_pipeline("p");
        step->set_engine(v1::ENGINE_CPU);
        step->set_device("cpu");
        step->add_kernel_us(1);
        SetZero(DType::kI64, step->mutable_value());
      }
      spoil(replies);
      return grpc::Status::OK;
    };
    return client_
        ->Ladder({.dtype = "i32", .count = 3, .pipelines = {"p"}, .repeats = 1}, [](const auto&, const auto&) {})
        .status();
  };
  EXPECT_TRUE(ladder([](auto*) {}).ok());
  const struct {
    std::string message;
    std::function<void(Replies*)> spoil;
  } kCases[] = {
      {"start: got none; allowed: one, which is the first message", [](auto* replies) { replies->clear(); }},
      {"reply: got a step; allowed: a start first", [](auto* replies) { replies->erase(replies->begin()); }},
      {"steps: got 1; allowed: 2", [](auto* replies) { replies->pop_back(); }},
      {"steps: got 3; allowed: 2", [](auto* replies) { replies->push_back(replies->back()); }},
      {"start.start: got two; allowed: one, which is the first message",
       [](auto* replies) { replies->push_back(replies->front()); }},
      {"reply: got nothing; allowed: a step", [](auto* replies) { replies->back().Clear(); }},
      {"start.bytes: got 11; allowed: 3 times 4", [](auto* replies) { (*replies)[0].mutable_start()->set_bytes(11); }},
      {"start.expected.value.dtype: got f64; allowed: i64",
       [](auto* replies) { SetZero(DType::kF64, (*replies)[0].mutable_start()->mutable_expected()); }},
      {"steps[1].pipeline: got 'q'; allowed: p",
       [](auto* replies) { replies->back().mutable_step()->set_pipeline("q"); }},
      {"steps[1].kernel_us: got 2; allowed: 1",
       [](auto* replies) { replies->back().mutable_step()->add_kernel_us(1); }},
      {"steps[0].kernel_us: got nan; allowed: finite numbers from 0",
       [](auto* replies) { (*replies)[1].mutable_step()->set_kernel_us(0, kNan); }},
      {"steps[0].value: got none; allowed: i, the member of i64",
       [](auto* replies) { (*replies)[1].mutable_step()->mutable_value()->clear_i(); }},
  };
  for (const auto& [message, spoil] : kCases) ExpectWrong(ladder(spoil), message);
}

// Of a resident array only the server knows dtype and shape; results that go with no dtype are wrong all the same.
TEST_F(AnswersTest, ResultsOfAResidentArrayGoTogether) {
  const RemoteArray array = RemoteArray::Resident("0123456789abcdef");
  ASSERT_TRUE(client_->Reduce(array, {"sum", "min"}).ok());
  service_.spoil = [](v1::ReduceResponse* answer) {
    SetZero(DType::kI16, answer->mutable_results(1)->mutable_value());
  };
  ExpectWrong(client_->Reduce(array, {"sum", "min"}).status(),
              "results[1].value.dtype: got i16; allowed: what goes with the other results");
  ASSERT_TRUE(client_->Reduce(array, {"mean", "min"}).ok());
}

TEST_F(AnswersTest, AnAnswerLargerThanAnyHonestOne) {
  service_.spoil_info = [](auto* info) { info->mutable_no_cuda_reason()->resize(101'000'000, 'x'); };
  const absl::Status status = client_->GetServerInfo().status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("the answer of ", address_, " is larger than this client accepts")));
}

// The answer to max and argmax of a (2, 3) array of f32 along its last dimension.
void CompleteArrays(v1::ReduceResponse* answer) {
  answer->clear_results();
  const struct {
    v1::Op op;
    v1::DType dtype;
    std::size_t bytes;
  } rows[] = {{v1::OP_MAX, v1::DTYPE_F32, 8}, {v1::OP_ARGMAX, v1::DTYPE_U64, 16}};
  for (const auto& row : rows) {
    v1::ArrayResult* const result = answer->add_arrays();
    result->set_op(row.op);
    result->mutable_array()->set_dtype(row.dtype);
    result->mutable_array()->add_shape(2);
    result->set_data(std::string(row.bytes, '\0'));
  }
}

TEST_F(AnswersTest, WrongArraysAlongAxes) {
  const std::vector<float> elements(6);
  const ArrayView array = ArrayView::Of(elements, {{2, 3}});
  service_.spoil = CompleteArrays;
  const absl::StatusOr<ArrayReply> right = client_->ReduceArray(array, {"max", "argmax"}, {.axis = {-1}});
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_EQ(right->Find("max")->As<float>().size(), 2U);
  EXPECT_TRUE(right->Find("max")->As<double>().empty());
  EXPECT_EQ(right->Find("argmax")->At(1).AsInt64(), 0);
  const WrongReduce cases[] = {
      {"arrays: got 1; allowed: 2, one for each op, and no results",
       [](auto* answer) { answer->mutable_arrays()->RemoveLast(); }},
      {"arrays: got 2; allowed: 2, one for each op, and no results", [](auto* answer) { answer->add_results(); }},
      {"arrays[0].op: got argmax; allowed: max", [](auto* answer) { answer->mutable_arrays()->SwapElements(0, 1); }},
      {"arrays[0].array.dtype: got f64; allowed: f32",
       [](auto* answer) { answer->mutable_arrays(0)->mutable_array()->set_dtype(v1::DTYPE_F64); }},
      {"arrays[1].data: got 15 bytes; allowed: 16",
       [](auto* answer) { answer->mutable_arrays(1)->mutable_data()->resize(15); }},
      {"arrays[1].where: got kept; allowed: data", [](auto* answer) { answer->mutable_arrays(1)->mutable_kept(); }},
  };
  for (const WrongReduce& wrong : cases) {
    service_.spoil = [&](v1::ReduceResponse* answer) {
      CompleteArrays(answer);
      wrong.spoil(answer);
    };
    ExpectWrong(client_->ReduceArray(array, {"max", "argmax"}, {.axis = {-1}}).status(), wrong.message);
  }
}

// The same with the state of each output.
TEST_F(AnswersTest, WrongStatesOfArrays) {
  const std::vector<float> elements(6);
  const ArrayView array = ArrayView::Of(elements, {{2, 3}});
  const auto complete = [](v1::ReduceResponse* answer) {
    CompleteArrays(answer);
    answer->clear_state();
    const ReduceSpec spec{.dtype = DType::kF32, .count = 6, .ops = {Op::kMax, Op::kArgmax}};
    State state;
    state.partial.count = 3;
    state.partial.extrema.min_index = state.partial.extrema.max_index = 0;
    state.partial.extrema.min_key = state.partial.extrema.max_key = 0;
    ToProto(spec, 3, {state, state}, answer->mutable_arrays_state());
    answer->mutable_arrays_state()->add_shape(2);
  };
  service_.spoil = complete;
  const absl::StatusOr<ArrayReply> right =
      client_->ReduceArray(array, {"max", "argmax"}, {.axis = {-1}}, {.return_state = true});
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_TRUE(IsArrayState(right->state));
  const WrongReduce cases[] = {
      {"arrays_state: got none; allowed: a state", [](auto* answer) { answer->clear_arrays_state(); }},
      {"arrays_state: outputs: got 1 states; allowed: 2, as shape says",
       [](auto* answer) { answer->mutable_arrays_state()->mutable_outputs()->RemoveLast(); }},
      {"arrays_state.count: got 5; allowed: 6", [](auto* answer) { answer->mutable_arrays_state()->set_count(5); }},
      {"arrays_state.question.state.ops: got others; allowed: the ops of the request",
       [](auto* answer) {
         v1::ArraysState& state = *answer->mutable_arrays_state();
         state.mutable_question()->mutable_ops()->SwapElements(0, 1);
         for (v1::State& output : *state.mutable_outputs()) output.mutable_ops()->SwapElements(0, 1);
       }},
      {"arrays_state.keys: got some; allowed: none",
       [](auto* answer) {
         v1::ArrayResult& keys = *answer->mutable_arrays_state()->mutable_keys();
         keys.mutable_array()->set_dtype(v1::DTYPE_U8);
         keys.mutable_array()->add_shape(2);
         keys.set_data("ab");
       }},
      {"arrays_state.shape: got another; allowed: that of the results",
       [](auto* answer) { answer->mutable_arrays_state()->add_shape(1); }},
      {"state: got one; allowed: none, because the results are arrays",
       [](auto* answer) { *answer->mutable_state() = answer->arrays_state().question(); }},
  };
  for (const WrongReduce& wrong : cases) {
    service_.spoil = [&](v1::ReduceResponse* answer) {
      complete(answer);
      wrong.spoil(answer);
    };
    ExpectWrong(client_->ReduceArray(array, {"max", "argmax"}, {.axis = {-1}}, {.return_state = true}).status(),
                wrong.message);
  }
}

// The same, written to a region from byte 64 on.
TEST_F(AnswersTest, WrongPlacesOfResultsInARegion) {
  const std::vector<float> elements(6);
  const ArrayView array = ArrayView::Of(elements, {{2, 3}});
  const PartitionOptions options{.axis = {-1}, .write_to = RegionPlace{"0123456789abcdef", 64}};
  const auto write = [](v1::ReduceResponse* answer) {
    CompleteArrays(answer);
    answer->mutable_arrays(0)->set_written_at(64);
    answer->mutable_arrays(1)->set_written_at(128);
  };
  service_.spoil = write;
  const absl::StatusOr<ArrayReply> right = client_->ReduceArray(array, {"max", "argmax"}, options);
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_EQ(right->results[1].written_at, 128);
  const WrongReduce cases[] = {
      {"arrays[0].written_at: got 0; allowed: 64", [](auto* answer) { answer->mutable_arrays(0)->set_written_at(0); }},
      {"arrays[1].written_at: got 72; allowed: 128",
       [](auto* answer) { answer->mutable_arrays(1)->set_written_at(72); }},
      {"arrays[1].where: got data; allowed: written_at", [](auto* answer) { answer->mutable_arrays(1)->set_data(""); }},
      {"arrays[1].written_at: got 128; allowed: results of less than 2^63 bytes",
       [](auto* answer) { answer->mutable_arrays(1)->mutable_array()->set_shape(0, (INT64_MAX - 7) / 8); }},
  };
  for (const WrongReduce& wrong : cases) {
    service_.spoil = [&](v1::ReduceResponse* answer) {
      write(answer);
      wrong.spoil(answer);
    };
    ExpectWrong(client_->ReduceArray(array, {"max", "argmax"}, options).status(), wrong.message);
  }
}

}  // namespace
}  // namespace reduced::client
