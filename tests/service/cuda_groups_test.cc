// Reductions of segments, by keys and under masks on a GPU, through the RPCs: which engine answers, and where the array
// and those beside it may be.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/chunk_stream.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

constexpr std::int64_t kRows = 40'000;

class CudaGroupsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    EngineOptions options;
    options.cuda_array_bytes = std::int64_t{64} << 20;
    absl::StatusOr<std::unique_ptr<Engines>> engines = Engines::Start(options);
    ASSERT_TRUE(engines.ok()) << engines.status();
    server_ = std::make_unique<TestServer>(ServerOptions(), *std::move(engines));
    v1::GetServerInfoResponse info;
    ASSERT_TRUE(client().Info(&info).ok());
    if (!info.no_cuda_reason().empty()) {
      if (std::getenv("REDUCED_REQUIRE_GPU") != nullptr) FAIL() << info.no_cuda_reason();
      GTEST_SKIP() << info.no_cuda_reason();
    }
    for (std::int64_t i = 0; i < kRows; ++i) {
      elements_.push_back(static_cast<float>(i * 7919 % 1009) - 300.25F);
      keys_.push_back(static_cast<std::int32_t>(i * i % 211));
      mask_.push_back(i % 3 == 0 ? 0 : 1);
    }
    for (std::int64_t begin = 0; begin < kRows; begin = begin * 5 / 4 + 3) offsets_.push_back(begin);
    offsets_.push_back(kRows);
  }
  TestClient& client() { return server_->client(); }

  // The id of a resident array of these, on the first GPU or on that device.
  template <class T>
  std::string Put(v1::DType dtype, const std::vector<T>& values, const std::string& device = "") {
    v1::PutArrayHeader header;
    header.mutable_array()->set_dtype(dtype);
    header.mutable_array()->add_shape(static_cast<std::int64_t>(values.size()));
    header.set_device(device);
    PutArrayCall put(client());
    EXPECT_TRUE(put.Header(header));
    const std::string bytes(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    for (std::size_t i = 0; i < bytes.size(); i += 1'000'000) EXPECT_TRUE(put.Chunk(bytes.substr(i, 1'000'000)));
    EXPECT_TRUE(put.End().ok());
    return put.response().array().id();
  }

  template <class T>
  static v1::SideArray Inline(v1::DType dtype, const std::vector<T>& values) {
    v1::SideArray side;
    side.mutable_array()->set_dtype(dtype);
    side.mutable_array()->add_shape(static_cast<std::int64_t>(values.size()));
    side.set_inline_data(values.data(), values.size() * sizeof(T));
    return side;
  }
  static v1::SideArray Named(const std::string& id) {
    v1::SideArray side;
    side.set_array_id(id);
    return side;
  }

  // That both requests have the same answers, `got` from the GPU.
  void ExpectEqual(const v1::ReduceRequest& expected, const v1::ReduceRequest& got, const std::string& reason) {
    v1::ReduceResponse right;
    grpc::Status status = client().Reduce(expected, &right);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(right.execution().device(), "cpu");
    v1::ReduceResponse response;
    status = client().Reduce(got, &response);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(response.execution().device(), "cuda:0");
    EXPECT_THAT(response.execution().reason(), ::testing::HasSubstr(reason));
    ASSERT_EQ(response.arrays_size(), right.arrays_size());
    for (int i = 0; i < right.arrays_size(); ++i) EXPECT_EQ(response.arrays(i).data(), right.arrays(i).data()) << i;
    EXPECT_EQ(response.keys().data(), right.keys().data());
  }

  std::vector<float> elements_;
  std::vector<std::int32_t> keys_;
  std::vector<std::uint8_t> mask_;
  std::vector<std::int64_t> offsets_;

 private:
  std::unique_ptr<TestServer> server_;
};

TEST_F(CudaGroupsTest, WhereTheArrayIs) {
  const std::string array = Put(v1::DTYPE_F32, elements_);
  const std::string offsets = Put(v1::DTYPE_I64, offsets_);
  const std::string keys = Put(v1::DTYPE_I32, keys_);
  const std::string mask = Put(v1::DTYPE_BOOL, mask_);
  for (const std::vector<v1::Op>& ops : {std::vector<v1::Op>{v1::OP_SUM, v1::OP_MEAN},
                                         {v1::OP_ARGMAX, v1::OP_MIN},
                                         {v1::OP_STD, v1::OP_L2},
                                         {v1::OP_COUNT, v1::OP_ANY}}) {
    for (int which = 0; which < 6; ++which) {
      SCOPED_TRACE(which);
      v1::ReduceRequest sent = RequestOf(v1::DTYPE_F32, elements_, ops);
      sent.set_empty(v1::EMPTY_POLICY_FILL);
      v1::ReduceRequest resident = sent;
      resident.set_array_id(array);
      resident.clear_array();
      if (which == 0 || which == 3) {
        *sent.mutable_segments()->mutable_offsets() = Inline(v1::DTYPE_I64, offsets_);
        *resident.mutable_segments()->mutable_offsets() = Named(offsets);
      }
      if (which == 1 || which == 4) {
        *sent.mutable_keys()->mutable_keys() = Inline(v1::DTYPE_I32, keys_);
        *resident.mutable_keys()->mutable_keys() = Named(keys);
      }
      if (which >= 2) {
        *sent.mutable_where()->mutable_elements() = Inline(v1::DTYPE_BOOL, mask_);
        *resident.mutable_where()->mutable_elements() = Named(mask);
      }
      if (which == 5) sent.mutable_axes()->add_axis(0);
      *resident.mutable_axes() = sent.axes();
      if (which != 5) resident.clear_axes();
      ExpectEqual(sent, resident, "");
      v1::ReduceRequest copied = sent;
      copied.mutable_options()->set_engine(v1::ENGINE_CUDA);
      ExpectEqual(sent, copied, "");
    }
  }
}

// What two engines know of the parts of an array merges into the answers for the whole of it.
TEST_F(CudaGroupsTest, StatesMergeWithThoseOfTheCpu) {
  const auto stub = v1::Reduction::NewStub(client().channel());
  constexpr std::int64_t kCut = kRows / 3;
  for (const bool keyed : {true, false}) {
    SCOPED_TRACE(keyed);
    // Rows [begin, end).
    const auto ask = [&](std::int64_t begin, std::int64_t end) {
      const std::vector<float> part(elements_.begin() + begin, elements_.begin() + end);
      v1::ReduceRequest request = RequestOf(v1::DTYPE_F32, part, {v1::OP_SUM, v1::OP_VAR, v1::OP_ARGMIN, v1::OP_COUNT});
      if (keyed) {
        *request.mutable_keys()->mutable_keys() =
            Inline(v1::DTYPE_I32, std::vector<std::int32_t>(keys_.begin() + begin, keys_.begin() + end));
        *request.mutable_where()->mutable_elements() =
            Inline(v1::DTYPE_BOOL, std::vector<std::uint8_t>(mask_.begin() + begin, mask_.begin() + end));
      } else {
        request.mutable_axes()->add_axis(0);
      }
      return request;
    };
    v1::ReduceRequest first = ask(0, kCut);
    first.mutable_options()->set_engine(v1::ENGINE_CUDA);
    v1::ReduceRequest second = ask(kCut, kRows);
    second.mutable_options()->set_engine(v1::ENGINE_CPU);
    v1::MergeRequest request;
    for (v1::ReduceRequest* const part : {&first, &second}) {
      part->set_return_state(true);
      v1::ReduceResponse response;
      const grpc::Status status = client().Reduce(*part, &response);
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(response.execution().device(), part == &first ? "cuda:0" : "cpu");
      *request.add_arrays() = response.arrays_state();
    }
    v1::MergeResponse merged;
    grpc::ClientContext context;
    SetContextDeadline(&context);
    const grpc::Status status = stub->Merge(&context, request, &merged);
    ASSERT_TRUE(status.ok()) << status.error_message();
    v1::ReduceResponse right;
    ASSERT_TRUE(client().Reduce(ask(0, kRows), &right).ok());
    ASSERT_EQ(merged.arrays_size(), 4);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(merged.arrays(i).data(), right.arrays(i).data()) << i;
    EXPECT_EQ(merged.keys().data(), right.keys().data());
  }
}

TEST_F(CudaGroupsTest, WhereItMayNotBe) {
  const std::string mask = Put(v1::DTYPE_BOOL, mask_);
  v1::ReduceRequest request = RequestOf(v1::DTYPE_F32, elements_, {v1::OP_SUM});
  *request.mutable_where()->mutable_elements() = Named(mask);
  v1::ReduceResponse response;
  grpc::Status status = client().Reduce(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(status.error_message(),
            "where.elements: got an array in the memory of cuda:0 for the engine of cpu; allowed: in host memory");
  request.mutable_options()->set_engine(v1::ENGINE_CUDA);
  status = client().Reduce(request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();

  const std::vector<std::uint8_t> large(std::size_t{60} << 20);
  Put(v1::DTYPE_U8, large);
  request = RequestOf(v1::DTYPE_F32, std::vector<float>(1 << 21), {v1::OP_SUM});
  *request.mutable_segments()->mutable_offsets() = Inline(v1::DTYPE_I32, std::vector<std::int32_t>{0, 7, 1 << 21});
  request.mutable_options()->set_engine(v1::ENGINE_CUDA);
  status = client().Reduce(request, &response);  // in pieces
  EXPECT_TRUE(status.ok()) << status.error_message();
  request = RequestOf(v1::DTYPE_F32, elements_, {v1::OP_SUM});
  request.set_array_id(Put(v1::DTYPE_F32, elements_));
  request.clear_array();
  *request.mutable_segments()->mutable_offsets() = Inline(v1::DTYPE_I32, std::vector<std::int32_t>(3 << 20, 5));
  request.mutable_options()->set_engine(v1::ENGINE_CUDA);
  status = client().Reduce(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("must be in the device's memory: cuda:0 has no room"));
}

TEST_F(CudaGroupsTest, ErrorsAreThoseOfTheCpu) {
  v1::ReduceRequest request;
  request.set_array_id(Put(v1::DTYPE_F32, elements_));
  request.add_ops(v1::OP_SUM);
  keys_[1234] = -1;
  *request.mutable_keys()->mutable_keys() = Named(Put(v1::DTYPE_I32, keys_));
  request.mutable_keys()->set_groups(211);
  v1::ReduceResponse response;
  grpc::Status status = client().Reduce(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(status.error_message(), "keys[1234]: got -1; allowed: 0 to 210, or outside: DROP");
  request.clear_keys();
  offsets_[3] = 0;
  *request.mutable_segments()->mutable_offsets() = Named(Put(v1::DTYPE_I64, offsets_));
  status = client().Reduce(request, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), ::testing::HasSubstr("segments.offsets[3]: got 0; allowed: "));
}

}  // namespace
}  // namespace reduced::server
