// What the tests of calls have in common: a server within the process that answers what each test says, and a client of
// it.
#ifndef REDUCED_TESTS_UNIT_CLIENT_FAKE_SERVER_H_
#define REDUCED_TESTS_UNIT_CLIENT_FAKE_SERVER_H_

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "reduced/client.h"
#include "reduced/v1/reduced.grpc.pb.h"
#include "tests/unit/client/honest.h"

namespace reduced::client {

inline constexpr absl::Duration kLong = absl::Seconds(30);

class FakeService final : public v1::Reduction::CallbackService {
 public:
  // Change an answer after everything else, into a wrong one.
  std::function<void(v1::ReduceResponse*)> spoil = [](auto*) {};
  std::function<void(v1::ArrayInfo*)> spoil_put = [](auto*) {};
  std::function<void(v1::GetServerInfoResponse*)> spoil_info = [](auto*) {};
  // Fills in the answer; what it leaves out is that of an honest server.
  std::function<grpc::Status(const v1::ReduceRequest&, v1::ReduceResponse*)> on_reduce;
  std::function<void(grpc::CallbackServerContext*)> on_context = [](auto*) {};
  // Sees every message of a stream, in order; OK: reads on. After the last, or what is not OK, the stream ends so.
  std::function<grpc::Status(const v1::ReduceStreamRequest&)> on_stream;
  // Instead, if it is there; told who sends it.
  std::function<grpc::Status(const std::string& peer, const v1::ReduceStreamRequest&)> on_part;
  // The same of a PutArray, which is answered with what `put` is then.
  std::function<grpc::Status(const v1::PutArrayRequest&)> on_put;
  v1::ArrayInfo put;
  std::function<grpc::Status(const v1::MergeRequest&, v1::MergeResponse*)> on_merge;
  std::function<grpc::Status(const v1::ListArraysRequest&, v1::ListArraysResponse*)> on_list;
  std::function<grpc::Status(const v1::DeleteArrayRequest&)> on_delete;
  // Writes the answer.
  std::function<grpc::Status(const v1::LadderRequest&, std::vector<v1::LadderReply>*)> on_ladder;
  bool answer = true;  // false: a call ends only when its client cancels it or its deadline passes
  absl::Notification cancelled;

  grpc::ServerUnaryReactor* Reduce(grpc::CallbackServerContext* context, const v1::ReduceRequest* request,
                                   v1::ReduceResponse* response) override {
    struct Waiting : grpc::ServerUnaryReactor {
      explicit Waiting(absl::Notification* to) : cancelled(to) {}
      void OnCancel() override {
        if (!cancelled->HasBeenNotified()) cancelled->Notify();
        Finish(grpc::Status::CANCELLED);
      }
      void OnDone() override { delete this; }
      absl::Notification* const cancelled;
    };
    if (!answer) return new Waiting(&cancelled);
    on_context(context);
    auto* reactor = context->DefaultReactor();
    const grpc::Status status = on_reduce(*request, response);
    Complete(*request, response);
    spoil(response);
    reactor->Finish(status);
    return reactor;
  }

  // Sees the whole request; each operand is answered as by Reduce.
  std::function<grpc::Status(const v1::ReduceManyRequest&)> on_many = [](const auto&) { return grpc::Status::OK; };
  std::function<void(v1::ReduceManyResponse*)> spoil_many = [](auto*) {};

  grpc::ServerUnaryReactor* ReduceMany(grpc::CallbackServerContext* context, const v1::ReduceManyRequest* request,
                                       v1::ReduceManyResponse* response) override {
    auto* reactor = context->DefaultReactor();
    grpc::Status status = on_many(*request);
    for (const v1::SideArray& operand : request->operands()) {
      if (!status.ok()) break;
      v1::ReduceRequest alone = request->question();
      if (operand.has_array()) *alone.mutable_array() = operand.array();
      alone.set_inline_data(operand.inline_data());
      v1::ReduceResponse& answered = *response->add_responses();
      status = on_reduce(alone, &answered);
      Complete(alone, &answered);
    }
    spoil_many(response);
    reactor->Finish(status);
    return reactor;
  }

  // Reads requests until one isn't OK.
  template <class Request>
  struct Reading : grpc::ServerReadReactor<Request> {
    Reading(bool reads, std::function<grpc::Status(const Request&)> sees, std::function<void()> when_read)
        : answers(reads), on_request(std::move(sees)), at_end(std::move(when_read)) {
      if (answers) this->StartRead(&request);
    }
    void OnReadDone(bool ok) override {
      if (!ok) {
        at_end();
        return this->Finish(grpc::Status::OK);
      }
      const grpc::Status status = on_request(request);
      if (!status.ok()) return this->Finish(status);
      this->StartRead(&request);
    }
    void OnCancel() override {
      if (!answers) this->Finish(grpc::Status::CANCELLED);
    }
    void OnDone() override { delete this; }
    const bool answers;
    const std::function<grpc::Status(const Request&)> on_request;
    const std::function<void()> at_end;
    Request request;
  };

  grpc::ServerReadReactor<v1::ReduceStreamRequest>* ReduceStream(grpc::CallbackServerContext* context,
                                                                 v1::ReduceResponse* response) override {
    const auto header = std::make_shared<v1::ReduceRequest>();
    const auto sees = [this, header, peer = context->peer()](const v1::ReduceStreamRequest& request) {
      if (request.has_header()) *header = request.header();
      return on_part ? on_part(peer, request) : on_stream(request);
    };
    return new Reading<v1::ReduceStreamRequest>(answer, sees, [this, header, response] {
      Complete(*header, response);
      spoil(response);
    });
  }

  grpc::ServerReadReactor<v1::PutArrayRequest>* PutArray(grpc::CallbackServerContext*,
                                                         v1::PutArrayResponse* response) override {
    const auto header = std::make_shared<v1::PutArrayHeader>();
    const auto sees = [this, header](const v1::PutArrayRequest& request) {
      if (request.has_header()) *header = request.header();
      return on_put(request);
    };
    return new Reading<v1::PutArrayRequest>(answer, sees, [this, header, response] {
      v1::ArrayInfo* const array = response->mutable_array();
      *array = put;
      Complete(*header, array);
      spoil_put(array);
    });
  }

  grpc::ServerUnaryReactor* Merge(grpc::CallbackServerContext* context, const v1::MergeRequest* request,
                                  v1::MergeResponse* response) override {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(on_merge(*request, response));
    return reactor;
  }

  grpc::ServerUnaryReactor* ListArrays(grpc::CallbackServerContext* context, const v1::ListArraysRequest* request,
                                       v1::ListArraysResponse* response) override {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(on_list(*request, response));
    return reactor;
  }

  grpc::ServerUnaryReactor* DeleteArray(grpc::CallbackServerContext* context, const v1::DeleteArrayRequest* request,
                                        v1::DeleteArrayResponse*) override {
    auto* reactor = context->DefaultReactor();
    reactor->Finish(on_delete(*request));
    return reactor;
  }

  grpc::ServerWriteReactor<v1::LadderReply>* Ladder(grpc::CallbackServerContext*,
                                                    const v1::LadderRequest* request) override {
    struct Writing : grpc::ServerWriteReactor<v1::LadderReply> {
      void Next() { written < replies.size() ? StartWrite(&replies[written++]) : Finish(status); }
      void OnWriteDone(bool) override { Next(); }
      void OnDone() override { delete this; }
      std::vector<v1::LadderReply> replies;
      std::size_t written = 0;
      grpc::Status status;
    };
    auto* writing = new Writing;
    writing->status = on_ladder(*request, &writing->replies);
    writing->Next();
    return writing;
  }

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context, const v1::GetServerInfoRequest*,
                                          v1::GetServerInfoResponse* response) override {
    response->set_version("1.2.3");
    response->set_uptime_ms(1500);
    response->mutable_limits()->set_max_message_bytes(77);
    response->mutable_limits()->set_max_ladder_bytes(88);
    response->mutable_limits()->set_max_streams(99);
    response->mutable_limits()->set_max_sessions(66);
    response->mutable_limits()->set_max_session_requests(55);
    response->mutable_limits()->set_default_array_ttl_ms(2000);
    response->mutable_limits()->set_max_array_ttl_ms(3000);
    response->set_region_socket("/somewhere");
    response->mutable_usage()->set_streams(1);
    response->mutable_usage()->set_sessions(2);
    response->mutable_usage()->set_arrays(3);
    response->mutable_usage()->set_regions(4);
    auto* device = response->add_devices();
    device->set_name("cuda:0");
    device->set_engine(v1::ENGINE_CUDA);
    device->set_lanes(4);
    device->set_array_bytes(5);
    device->set_array_bytes_limit(6);
    device->set_reductions(7);
    device->set_reduced_bytes(8);
    device->add_links("NVLink x18, peer access: cuda:1");
    auto* op = response->add_ops();
    op->set_name("bit_and");
    op->add_dtypes(v1::DTYPE_BOOL);
    op->add_dtypes(v1::DTYPE_U64);
    auto* pipeline = response->add_pipelines();
    pipeline->set_name("p");
    pipeline->set_engine(v1::ENGINE_CPU);
    pipeline->add_ops(v1::OP_SUM_SQUARES);
    pipeline->set_default_of_engine(true);
    pipeline->set_fused(true);
    pipeline->set_fixed_order(true);
    pipeline->add_block_sizes(64);
    pipeline->add_block_sizes(128);
    ++infos;
    spoil_info(response);
    auto* reactor = context->DefaultReactor();
    reactor->Finish(on_info());
    return reactor;
  }
  std::function<grpc::Status()> on_info = [] { return grpc::Status::OK; };
  std::atomic<int> infos = 0;  // GetServerInfos
};

class CallTest : public ::testing::Test {
 protected:
  void SetUp() override {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.SetMaxReceiveMessageSize(8 << 20);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
    address_ = absl::StrCat("127.0.0.1:", port_);
    client_ = Client::Create({.server = address_, .timeout = kLong}).value();
  }
  void TearDown() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(5));
    server_.reset();
  }

  FakeService service_;
  int port_ = 0;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Client> client_;
  const std::vector<float> elements_ = {1, 2, 4};
  const ArrayView array_ = ArrayView::Of(std::span<const float>(elements_));
};

}  // namespace reduced::client

#endif  // REDUCED_TESTS_UNIT_CLIENT_FAKE_SERVER_H_
