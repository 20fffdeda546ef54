// Servers with tokens, and the callers who have them.
#ifndef REDUCED_TESTS_SERVICE_IDENTITIES_H_
#define REDUCED_TESTS_SERVICE_IDENTITIES_H_

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "server/security/security.h"
#include "tests/service/test_server.h"

namespace reduced::server {

// sha256sum of "alice-token" and of "bob-token".
inline constexpr char kAlice[] = "alice 9c220f200955d76c0a38d308225e0ef10c5f971acaf2f8d1d8f732affa5bd1dc\n";
inline constexpr char kBob[] = "bob 97dd3707015dcf069cf73022ed7173b1165db6eff24b441cb57fd069a8c4e525\n";
inline constexpr char kAliceToken[] = "Bearer alice-token";
inline constexpr char kBobToken[] = "Bearer bob-token";

using Headers = std::vector<std::pair<std::string, std::string>>;
inline const Headers kNoToken = {};
inline const Headers kAsAlice = {{"authorization", kAliceToken}};
inline const Headers kAsBob = {{"authorization", kBobToken}};

inline void Fill(grpc::ClientContext* context, const Headers& headers, absl::Duration timeout = kPatience) {
  SetContextDeadline(context, timeout);
  for (const auto& [key, value] : headers) context->AddMetadata(key, value);
}

class SecurityTest : public ::testing::Test {
 protected:
  SecurityTest() { Write(absl::StrCat(kAlice, kBob)); }

  void Write(const std::string& tokens) const { std::ofstream(path_) << tokens; }

  ServerOptions Options() const {
    ServerOptions options;
    options.security.token_file = path_;
    options.security.credentials_refresh = absl::Milliseconds(10);
    return options;
  }

  static grpc::Status Put(const TestServer& server, const Headers& headers, const std::string& owner, std::string* id,
                          int bytes = 4) {
    const auto stub = v1::Reduction::NewStub(server.client().channel());
    grpc::ClientContext context;
    Fill(&context, headers);
    v1::PutArrayResponse response;
    const auto writer = stub->PutArray(&context, &response);
    v1::PutArrayRequest request;
    request.mutable_header()->mutable_array()->set_dtype(v1::DTYPE_U8);
    request.mutable_header()->mutable_array()->add_shape(bytes);
    request.mutable_header()->set_owner(owner);
    writer->Write(request);
    request.Clear();
    request.set_chunk(std::string(static_cast<std::size_t>(bytes), '\1'));
    writer->Write(request);
    writer->WritesDone();
    grpc::Status status = writer->Finish();
    if (status.ok()) *id = response.array().id();
    return status;
  }

  static grpc::Status Delete(const TestServer& server, const Headers& headers, const std::string& id,
                             const std::string& owner = "") {
    grpc::ClientContext context;
    Fill(&context, headers);
    v1::DeleteArrayRequest request;
    request.set_id(id);
    request.set_owner(owner);
    v1::DeleteArrayResponse response;
    return v1::Reduction::NewStub(server.client().channel())->DeleteArray(&context, request, &response);
  }

  static grpc::Status List(const TestServer& server, const Headers& headers, const std::string& owner,
                           std::vector<std::string>* ids) {
    grpc::ClientContext context;
    Fill(&context, headers);
    v1::ListArraysRequest request;
    request.set_owner(owner);
    v1::ListArraysResponse response;
    const grpc::Status status =
        v1::Reduction::NewStub(server.client().channel())->ListArrays(&context, request, &response);
    ids->clear();
    for (const v1::ArrayInfo& array : response.arrays()) ids->push_back(array.id());
    return status;
  }

  static grpc::Status ReduceKept(const TestServer& server, const Headers& headers, const std::string& id) {
    grpc::ClientContext context;
    Fill(&context, headers);
    v1::ReduceRequest request;
    request.set_array_id(id);
    request.add_ops(v1::OP_SUM);
    v1::ReduceResponse response;
    return v1::Reduction::NewStub(server.client().channel())->Reduce(&context, request, &response);
  }

  TempDir dir_;
  const std::string path_ = dir_ / "tokens";
};

// One part of an upload: an array of bytes, one in each part.
struct Part {
  void Begin(const TestServer& server, const Headers& headers, const std::string& upload, int index, int parts,
             int elements) {
    Fill(&context, headers);
    stub = v1::Reduction::NewStub(server.client().channel());
    writer = stub->ReduceStream(&context, &response);
    v1::ReduceStreamRequest request;
    request.mutable_header()->mutable_array()->set_dtype(v1::DTYPE_U8);
    request.mutable_header()->mutable_array()->add_shape(elements);
    request.mutable_header()->add_ops(v1::OP_SUM);
    v1::StreamPart& of = *request.mutable_stream_part();
    of.set_upload(upload);
    of.set_index(index);
    of.set_parts(parts);
    of.set_first(index);
    of.set_count(1);
    writer->Write(request);
  }
  void Send(char element) const {
    v1::ReduceStreamRequest request;
    request.set_chunk(std::string(1, element));
    writer->Write(request);
    writer->WritesDone();
  }

  std::unique_ptr<v1::Reduction::Stub> stub;
  grpc::ClientContext context;
  v1::ReduceResponse response;
  std::unique_ptr<grpc::ClientWriter<v1::ReduceStreamRequest>> writer;
};

}  // namespace reduced::server

#endif  // REDUCED_TESTS_SERVICE_IDENTITIES_H_
