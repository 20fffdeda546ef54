// PRECISION_EXACT by every way an array gets to the server: the same bits, those of the exact sum rounded once.
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/service/chunk_stream.h"
#include "tests/service/test_server.h"
#include "tests/support/data.h"

namespace reduced::server {
namespace {

const std::vector<v1::Op> kExactOps = {v1::OP_SUM, v1::OP_MEAN, v1::OP_L1,  v1::OP_SUM_SQUARES,
                                       v1::OP_L2,  v1::OP_VAR,  v1::OP_STD, v1::OP_MIN};

v1::ReduceRequest ExactHeaderOf(v1::DType dtype, std::int64_t count, const std::vector<v1::Op>& ops) {
  v1::ReduceRequest header = HeaderOf(dtype, count, ops);
  header.mutable_options()->set_precision(v1::PRECISION_EXACT);
  return header;
}

// The values to the bit.
std::vector<std::string> Bits(const v1::ReduceResponse& response) {
  std::vector<std::string> values;
  for (const v1::Result& result : response.results()) values.push_back(result.value().SerializeAsString());
  return values;
}

class ExactTest : public ::testing::Test {
 protected:
  v1::ReduceResponse Reduce(const v1::ReduceRequest& request) {
    v1::ReduceResponse response;
    const grpc::Status status = server_.client().Reduce(request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }

  TestServer server_;
};

TEST_F(ExactTest, RoundsOnce) {
  v1::ReduceRequest request = RequestOf<double>(v1::DTYPE_F64, {1e100, 1, -1e100, 0x1p-60}, {v1::OP_SUM, v1::OP_MEAN});
  for (const v1::Precision precision : {v1::PRECISION_DEFAULT, v1::PRECISION_EXACT}) {
    request.mutable_options()->set_precision(precision);
    const v1::ReduceResponse response = Reduce(request);
    EXPECT_EQ(response.results(0).value().f(), 1.0);
    EXPECT_EQ(response.results(1).value().f(), 0.25);
    EXPECT_EQ(response.execution().precision(), v1::PRECISION_EXACT);
    EXPECT_EQ(response.execution().engine(), v1::ENGINE_CPU);
  }
  request.mutable_options()->set_precision(v1::PRECISION_F64);
  EXPECT_EQ(Reduce(request).execution().precision(), v1::PRECISION_F64);
}

// By default: what a pipeline can.
TEST_F(ExactTest, IsWhatAPipelineHasUnlessAskedFor) {
  v1::ReduceRequest request = RequestOf<double>(v1::DTYPE_F64, {1e100, 1, -1e100}, {v1::OP_SUM});
  for (const auto& [pipeline, precision] :
       {std::pair{"tiled_simd", v1::PRECISION_EXACT}, std::pair{"sequential", v1::PRECISION_F64}}) {
    request.mutable_options()->set_pipeline(pipeline);
    const v1::ReduceResponse response = Reduce(request);
    EXPECT_EQ(response.execution().precision(), precision) << pipeline;
    EXPECT_EQ(response.results(0).value().f(), precision == v1::PRECISION_EXACT ? 1.0 : 0.0) << pipeline;
  }
  request.mutable_options()->set_precision(v1::PRECISION_EXACT);  // which sequential doesn't have
  v1::ReduceResponse response;
  EXPECT_EQ(server_.client().Reduce(request, &response).error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ExactTest, ChangesNothingForIntegersAndOtherOps) {
  v1::ReduceRequest integers = RequestOf<std::int32_t>(v1::DTYPE_I32, {1, 2}, {v1::OP_SUM, v1::OP_VAR});
  integers.mutable_options()->set_precision(v1::PRECISION_EXACT);
  const v1::ReduceResponse sums = Reduce(integers);
  EXPECT_EQ(sums.results(0).value().i(), 3);
  EXPECT_EQ(sums.results(1).value().f(), 0.25);
  EXPECT_EQ(sums.execution().precision(), v1::PRECISION_F64);
  v1::ReduceRequest extremum = RequestOf<float>(v1::DTYPE_F32, {1, 2}, {v1::OP_MIN});
  extremum.mutable_options()->set_precision(v1::PRECISION_EXACT);
  EXPECT_EQ(Reduce(extremum).execution().precision(), v1::PRECISION_F64);
}

TEST_F(ExactTest, GivesTheSameBitsByEveryWay) {
  for (const DType dtype : {DType::kF16, DType::kF32, DType::kF64}) {
    constexpr std::int64_t kCount = 400'003;
    const test::Bytes bytes = test::MakeData(test::DataKind::kFull, dtype, kCount, 11);
    const std::string elements(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::int64_t width = RowOf(dtype).bytes;
    const v1::ReduceRequest header = ExactHeaderOf(static_cast<v1::DType>(dtype), kCount, kExactOps);
    v1::ReduceRequest in_one = header;
    in_one.set_inline_data(elements);
    const std::vector<std::string> expected = Bits(Reduce(in_one));
    ASSERT_EQ(expected.size(), kExactOps.size());

    for (const std::size_t chunk : {std::size_t{1} << 20, std::size_t{99'991}}) {
      ReduceStreamCall stream(server_.client());
      bool open = stream.Header(header);
      for (std::size_t i = 0; open && i < elements.size(); i += chunk) open = stream.Chunk(elements.substr(i, chunk));
      const grpc::Status status = stream.End();
      ASSERT_TRUE(status.ok()) << status.error_message();
      EXPECT_EQ(Bits(stream.response()), expected);
      EXPECT_EQ(stream.response().execution().precision(), v1::PRECISION_EXACT);
    }

    // In three parts.
    const std::vector<std::int64_t> cuts = {0, 123'457, 123'458, kCount};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        v1::ReduceStreamRequest first;
        *first.mutable_header() = header;
        v1::StreamPart& part = *first.mutable_stream_part();
        part.set_upload("exact");
        part.set_parts(3);
        part.set_index(static_cast<std::int32_t>(i));
        part.set_first(cuts[i]);
        part.set_count(cuts[i + 1] - cuts[i]);
        const TestClient client(server_.address());
        ReduceStreamCall stream(client);
        stream.Write(first);
        const std::string own = elements.substr(static_cast<std::size_t>(cuts[i] * width),
                                                static_cast<std::size_t>((cuts[i + 1] - cuts[i]) * width));
        for (std::size_t at = 0; at < own.size(); at += 1 << 20) stream.Chunk(own.substr(at, 1 << 20));
        const grpc::Status status = stream.End();
        EXPECT_TRUE(status.ok()) << status.error_message();
        EXPECT_EQ(Bits(stream.response()), expected);
      });
    }
    for (std::thread& thread : threads) thread.join();

    // Kept.
    v1::PutArrayHeader put;
    *put.mutable_array() = header.array();
    PutArrayCall call(server_.client());
    call.Header(put);
    for (std::size_t i = 0; i < elements.size(); i += 1 << 20) call.Chunk(elements.substr(i, 1 << 20));
    ASSERT_TRUE(call.End().ok());
    v1::ReduceRequest kept = header;
    kept.clear_array();
    kept.set_array_id(call.response().array().id());
    EXPECT_EQ(Bits(Reduce(kept)), expected);

    // In a session.
    const auto stub = v1::Reduction::NewStub(server_.client().channel());
    grpc::ClientContext context;
    SetContextDeadline(&context);
    const auto session = stub->Session(&context);
    v1::SessionRequest request;
    request.set_id(1);
    *request.mutable_reduce() = in_one;
    session->Write(request);
    v1::SessionResponse response;
    ASSERT_TRUE(session->Read(&response));
    EXPECT_EQ(Bits(response.response()), expected);
    session->WritesDone();
    session->Finish();
  }
}

}  // namespace
}  // namespace reduced::server
