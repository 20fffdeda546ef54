// Reductions of segments, by keys and under masks, through the RPCs: results, errors, limits, and what may lie beside
// an array.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/array_calls.h"
#include "tests/service/error_form.h"
#include "tests/service/identities.h"
#include "tests/service/sharer.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <class T>
std::vector<T> ResultElements(const v1::ArrayResult& result) {
  std::vector<T> elements(result.data().size() / sizeof(T));
  if (!elements.empty()) std::memcpy(elements.data(), result.data().data(), result.data().size());
  return elements;
}

std::vector<std::int64_t> ShapeOf(const v1::ArrayResult& result) {
  return {result.array().shape().begin(), result.array().shape().end()};
}

template <class T>
v1::SideArray Side(v1::DType dtype, const std::vector<T>& elements) {
  v1::SideArray side;
  side.mutable_array()->set_dtype(dtype);
  side.mutable_array()->add_shape(static_cast<std::int64_t>(elements.size()));
  side.set_inline_data(elements.data(), elements.size() * sizeof(T));
  return side;
}

// 1, 2, ... as i32 of 6 elements, or of [6 / columns, columns].
v1::ReduceRequest Six(const std::vector<v1::Op>& ops, std::int64_t columns = 0) {
  v1::ReduceRequest request = RequestOf(v1::DTYPE_I32, std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}, ops);
  if (columns > 0) {
    request.mutable_array()->clear_shape();
    request.mutable_array()->add_shape(6 / columns);
    request.mutable_array()->add_shape(columns);
  }
  return request;
}
const std::vector<std::int16_t> kKeys = {7, -2, 7, 7, -2, 300};

class GroupsTest : public ::testing::Test {
 protected:
  static ServerOptions Options() {
    ServerOptions options;
    options.limits.max_result_bytes = 1 << 20;
    return options;
  }

  v1::ReduceResponse Reduce(const v1::ReduceRequest& request) {
    v1::ReduceResponse response;
    const grpc::Status status = server_.client().Reduce(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  TestServer server_{Options()};
};

TEST_F(GroupsTest, Segments) {
  v1::ReduceRequest request = Six({v1::OP_SUM, v1::OP_ARGMAX});
  request.set_empty(v1::EMPTY_POLICY_FILL);
  *request.mutable_segments()->mutable_offsets() = Side(v1::DTYPE_I64, std::vector<std::int64_t>{1, 3, 3, 6});
  v1::ReduceResponse response = Reduce(request);
  ASSERT_EQ(response.arrays_size(), 2);
  EXPECT_EQ(response.results_size(), 0);
  EXPECT_FALSE(response.has_keys());
  EXPECT_EQ(response.execution().reason(), "the array is in host memory, and reduced by groups or a mask");
  EXPECT_THAT(ShapeOf(response.arrays(0)), ElementsAre(3));
  EXPECT_THAT(ResultElements<std::int64_t>(response.arrays(0)), ElementsAre(5, 0, 15));
  EXPECT_THAT(ResultElements<std::uint64_t>(response.arrays(1)), ElementsAre(1, UINT64_MAX, 2));

  request = Six({v1::OP_SUM}, 2);
  *request.mutable_segments()->mutable_lengths() = Side(v1::DTYPE_I32, std::vector<std::int32_t>{1, 2});
  response = Reduce(request);
  EXPECT_THAT(ShapeOf(response.arrays(0)), ElementsAre(2, 2));
  EXPECT_THAT(ResultElements<std::int64_t>(response.arrays(0)), ElementsAre(1, 2, 8, 10));
}

TEST_F(GroupsTest, Keys) {
  v1::ReduceRequest request = Six({v1::OP_SUM, v1::OP_ARGMIN});
  *request.mutable_keys()->mutable_keys() = Side(v1::DTYPE_I16, kKeys);
  v1::ReduceResponse response = Reduce(request);
  EXPECT_THAT(ResultElements<std::int16_t>(response.keys()), ElementsAre(-2, 7, 300));
  EXPECT_EQ(response.keys().array().dtype(), v1::DTYPE_I16);
  EXPECT_THAT(ShapeOf(response.keys()), ElementsAre(3));
  EXPECT_THAT(ResultElements<std::int64_t>(response.arrays(0)), ElementsAre(7, 8, 6));
  EXPECT_THAT(ResultElements<std::uint64_t>(response.arrays(1)), ElementsAre(1, 0, 5));

  request.mutable_keys()->set_groups(8);
  request.set_empty(v1::EMPTY_POLICY_FILL);
  grpc::Status status = server_.client().Reduce(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(status.error_message(), "keys[1]: got -2; allowed: 0 to 7, or outside: DROP");
  request.mutable_keys()->set_outside(v1::OUTSIDE_KEYS_DROP);
  response = Reduce(request);
  EXPECT_FALSE(response.has_keys());
  EXPECT_THAT(ResultElements<std::int64_t>(response.arrays(0)), ElementsAre(0, 0, 0, 0, 0, 0, 0, 8));
}

TEST_F(GroupsTest, Masks) {
  v1::ReduceRequest request = Six({v1::OP_SUM, v1::OP_ARGMAX});
  *request.mutable_where()->mutable_elements() = Side(v1::DTYPE_BOOL, std::vector<std::uint8_t>{1, 0, 9, 0, 1, 0});
  v1::ReduceResponse response = Reduce(request);
  EXPECT_THAT(ShapeOf(response.arrays(0)), ElementsAre());
  EXPECT_THAT(ResultElements<std::int64_t>(response.arrays(0)), ElementsAre(9));
  EXPECT_THAT(ResultElements<std::uint64_t>(response.arrays(1)), ElementsAre(4));

  request = Six({v1::OP_SUM}, 3);
  *request.mutable_where()->mutable_bits() = Side(v1::DTYPE_U8, std::vector<std::uint8_t>{0b0101'1000, 0b1});
  request.mutable_where()->set_first_bit(3);  // 1, 1, 0, 1, 0, 1
  request.mutable_axes()->add_axis(1);
  request.mutable_axes()->set_keepdims(true);
  response = Reduce(request);
  EXPECT_THAT(ShapeOf(response.arrays(0)), ElementsAre(2, 1));
  EXPECT_THAT(ResultElements<std::int64_t>(response.arrays(0)), ElementsAre(3, 10));
  request.clear_axes();
  *request.mutable_keys()->mutable_keys() = Side(v1::DTYPE_U8, std::vector<std::uint8_t>{1, 0});
  response = Reduce(request);
  EXPECT_THAT(ResultElements<std::uint8_t>(response.keys()), ElementsAre(0, 1));
  EXPECT_THAT(ShapeOf(response.arrays(0)), ElementsAre(2, 3));
  EXPECT_THAT(ResultElements<std::int64_t>(response.arrays(0)), ElementsAre(4, 0, 6, 1, 2, 0));
}

TEST_F(GroupsTest, WrongRequests) {
  using Change = std::function<void(v1::ReduceRequest*)>;
  const auto keys = [](v1::ReduceRequest* r) { *r->mutable_keys()->mutable_keys() = Side(v1::DTYPE_I16, kKeys); };
  const auto offsets = [](v1::ReduceRequest* r) {
    *r->mutable_segments()->mutable_offsets() = Side(v1::DTYPE_I64, std::vector<std::int64_t>{0, 6});
  };
  const auto mask = [](v1::ReduceRequest* r) {
    *r->mutable_where()->mutable_elements() = Side(v1::DTYPE_BOOL, std::vector<std::uint8_t>(6, 1));
  };
  const auto bits = [](v1::ReduceRequest* r) {
    *r->mutable_where()->mutable_bits() = Side(v1::DTYPE_U8, std::vector<std::uint8_t>(1, 1));
  };
  const struct {
    std::vector<Change> changes;
    const char* message;
    grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
  } cases[] = {
      {{keys, offsets}, "keys: got it beside segments; allowed: one of axes, segments, keys"},
      {{offsets, [](auto* r) { r->mutable_axes(); }}, "segments: got it beside axes; allowed: one of"},
      {{[](auto* r) { r->mutable_segments(); }}, "segments: got none; allowed: offsets, lengths"},
      {{[](auto* r) { r->mutable_where(); }}, "where: got none; allowed: elements, bits"},
      {{[](auto* r) { r->mutable_keys(); }}, "keys.keys.source: got none; allowed: inline_data, array_id, region"},
      {{[](auto* r) { r->mutable_segments(), r->set_return_state(true); }}, "return_state: got true with segments"},
      {{keys, [](auto* r) { r->mutable_array()->clear_shape(), r->mutable_inline_data()->resize(4); }},
       "array.shape: got a scalar; allowed: 1 dimension or more with keys"},
      {{keys, [](auto* r) { r->mutable_keys()->mutable_keys()->mutable_inline_data()->pop_back(); }},
       "keys.keys.inline_data: got 11 bytes; allowed: 6 x 2 bytes"},
      {{keys, [](auto* r) { r->mutable_keys()->mutable_keys()->mutable_array()->set_dtype(v1::DTYPE_F16); }},
       "keys.keys: got f16; allowed: integers"},
      {{keys, [](auto* r) { *r->mutable_keys()->mutable_keys() = Side(v1::DTYPE_I8, std::vector<std::int8_t>(5)); }},
       "keys.keys: got 5 keys; allowed: as many as dimension 0 has items, 6, and at most 4294967294"},
      {{keys, [](auto* r) { r->mutable_keys()->set_groups(-1); }}, "keys.groups: got -1; allowed: 0 to 4294967294"},
      {{keys, [](auto* r) { r->mutable_keys()->set_groups(std::int64_t{1} << 32); }}, "keys.groups: got 4294967296"},
      {{keys, [](auto* r) { r->mutable_keys()->set_groups(1 << 20); }},
       "keys: got 1048576 outputs, results of 8388608 bytes; allowed: 1048576 bytes in a response"},
      {{keys, [](auto* r) { r->mutable_keys()->set_outside(v1::OUTSIDE_KEYS_DROP); }},
       "keys.outside: got a policy without groups"},
      {{keys, [](auto* r) { r->mutable_keys()->set_outside(static_cast<v1::OutsideKeys>(5)); }}, "keys.outside: got 5"},
      {{offsets, [](auto* r) { r->mutable_segments()->mutable_offsets()->mutable_array()->set_dtype(v1::DTYPE_U64); }},
       "segments.offsets: got u64; allowed: i32, i64"},
      {{offsets, [](auto* r) { r->mutable_segments()->mutable_offsets()->mutable_array()->add_shape(1); }},
       "segments.offsets: got an array of 2 dimensions; allowed: 1"},
      {{[](auto* r) { *r->mutable_segments()->mutable_offsets() = Side(v1::DTYPE_I64, std::vector<std::int64_t>{}); }},
       "segments.offsets: got none; allowed: 1 or more"},
      {{[](auto* r) {
         *r->mutable_segments()->mutable_offsets() = Side(v1::DTYPE_I64, std::vector<std::int64_t>{0, 9});
       }},
       "segments.offsets[1]: got 9; allowed: 0 to 6, ascending within dimension 0"},
      {{mask, [](auto* r) { r->mutable_where()->mutable_elements()->mutable_array()->add_shape(1); }},
       "where.elements: got shape [6, 1]; allowed: [6], the array's"},
      {{mask, [](auto* r) { r->mutable_where()->mutable_elements()->mutable_array()->set_dtype(v1::DTYPE_I8); }},
       "where.elements: got i8; allowed: bool"},
      {{mask, [](auto* r) { r->mutable_where()->set_first_bit(1); }},
       "where.first_bit: got 1 without bits; allowed: 0"},
      {{bits, [](auto* r) { r->mutable_where()->set_first_bit(-1); }}, "where.first_bit: got -1"},
      {{bits, [](auto* r) { r->mutable_where()->set_first_bit(INT64_MAX); }},
       "where.first_bit: got 9223372036854775807"},
      {{bits, [](auto* r) { r->mutable_where()->set_first_bit(3); }},
       "where.bits: got 1 bytes; allowed: 2 or more, for 6 elements from bit 3 on"},
      {{mask, [](auto* r) { r->mutable_options()->set_pipeline("recursive_pairs"); }},
       "pipeline: got recursive_pairs for arrays of results",
       grpc::StatusCode::UNIMPLEMENTED},
      {{mask,
        [](auto* r) {
          r->add_ops(v1::OP_MIN);
          r->mutable_where()->mutable_elements()->set_inline_data(std::string(6, '\0'));
        }},
       "op min: got an empty array; allowed: at least 1 element"},
      {{[](auto* r) {
         for (const std::int64_t size : {std::int64_t{0}, std::int64_t{1} << 40, std::int64_t{1} << 40}) {
           r->mutable_array()->add_shape(size);
         }
         r->mutable_array()->mutable_shape()->erase(r->array().shape().begin());
         r->set_inline_data("");
         r->set_ops(0, v1::OP_ANY);
         r->mutable_keep();
         *r->mutable_segments()->mutable_offsets() = Side(v1::DTYPE_I64, std::vector<std::int64_t>{0, 0, 0});
       }},
       "outputs: got "},
      {{[](auto* r) { r->mutable_where()->mutable_elements()->set_array_id("nobody"); }},
       "where.elements.array_id: got 'nobody', of no resident array",
       grpc::StatusCode::NOT_FOUND},
  };
  for (const auto& each : cases) {
    v1::ReduceRequest request = Six({v1::OP_SUM});
    for (const Change& change : each.changes) change(&request);
    v1::ReduceResponse response;
    const grpc::Status status = server_.client().Reduce(request, &response);
    EXPECT_EQ(status.error_code(), each.code) << each.message << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), AllOf(HasSubstr(each.message), IsErrorOfField()));
  }
  EXPECT_EQ(InfoOf(server_).devices(0).array_bytes(), 0);
}

TEST_F(GroupsTest, KeptWithTheirKeys) {
  v1::ReduceRequest request = Six({v1::OP_SUM, v1::OP_COUNT});
  *request.mutable_keys()->mutable_keys() = Side(v1::DTYPE_I16, kKeys);
  request.mutable_keep()->set_owner("me");
  const v1::ReduceResponse kept = Reduce(request);
  ASSERT_EQ(kept.arrays_size(), 2);
  ASSERT_TRUE(kept.keys().has_kept());
  EXPECT_EQ(kept.keys().kept().array().dtype(), v1::DTYPE_I16);
  EXPECT_EQ(InfoOf(server_).usage().arrays(), 3);
  // They are what the next request reduces, and what it reduces by.
  v1::ReduceRequest next = RequestForArray(kept.arrays(0).kept().id(), {v1::OP_MAX});
  next.mutable_keys()->mutable_keys()->set_array_id(kept.keys().kept().id());
  const v1::ReduceResponse response = Reduce(next);
  EXPECT_THAT(ResultElements<std::int64_t>(response.arrays(0)), ElementsAre(7, 8, 6));
  EXPECT_THAT(ResultElements<std::int16_t>(response.keys()), ElementsAre(-2, 7, 300));
  for (const v1::ArrayResult* each : {&kept.arrays(0), &kept.arrays(1), &kept.keys()}) {
    EXPECT_TRUE(DeleteArray(server_.client(), each->kept().id()).ok());
  }
  EXPECT_EQ(InfoOf(server_).devices(0).array_bytes(), 0);
}

TEST_F(GroupsTest, BesideInARegion) {
  Sharer sharer(InfoOf(server_).region_socket());
  const Descriptor memory(NumbersInMemory(6, kSeals));  // 1, 2, ... as i32
  const std::string token = sharer.Share(memory).token();
  v1::ReduceRequest request = Six({v1::OP_SUM});
  v1::SideArray* const keys = request.mutable_keys()->mutable_keys();
  keys->mutable_array()->set_dtype(v1::DTYPE_I32);
  keys->mutable_array()->add_shape(6);
  keys->mutable_region()->set_token(token);
  const v1::ReduceResponse response = Reduce(request);
  EXPECT_EQ(ResultElements<std::int32_t>(response.keys()).size(), 6);
  keys->mutable_region()->set_offset(4);
  v1::ReduceResponse none;
  const grpc::Status status = server_.client().Reduce(request, &none);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_THAT(status.error_message(), HasSubstr("keys.keys.region: got an array of 24 bytes"));
}

// How many keys there are is found out on the way: their results have the limits of others.
TEST_F(GroupsTest, MoreKeysThanAResponseMayHave) {
  std::vector<std::int64_t> keys(1 << 17);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<std::int64_t>(i * i);
  v1::ReduceRequest request = RequestOf(v1::DTYPE_I64, keys, {v1::OP_SUM});
  *request.mutable_keys()->mutable_keys() = Side(v1::DTYPE_I64, keys);
  v1::ReduceResponse response;
  const grpc::Status status = server_.client().Reduce(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              HasSubstr("keys: got 131072 outputs, results of 2097152 bytes; allowed: 1048576"));
  EXPECT_EQ(response.arrays_size(), 0);
}

TEST_F(GroupsTest, InSessions) {
  v1::SessionRequest message;
  message.set_id(1);
  *message.mutable_reduce() = Six({v1::OP_SUM});
  *message.mutable_reduce()->mutable_keys()->mutable_keys() = Side(v1::DTYPE_I16, kKeys);
  grpc::ClientContext context;
  SetContextDeadline(&context);
  const auto stub = v1::Reduction::NewStub(server_.client().channel());
  const auto session = stub->Session(&context);
  v1::SessionResponse answer;
  ASSERT_TRUE(session->Write(message) && session->Read(&answer));
  EXPECT_EQ(answer.code(), 0) << answer.message();
  v1::ReduceResponse expected;
  ASSERT_TRUE(server_.client().Reduce(message.reduce(), &expected).ok());
  EXPECT_EQ(answer.response().arrays(0).data(), expected.arrays(0).data());
  EXPECT_EQ(answer.response().keys().data(), expected.keys().data());
  EXPECT_TRUE(session->WritesDone());
  EXPECT_TRUE(session->Finish().ok());
}

}  // namespace
}  // namespace reduced::server
