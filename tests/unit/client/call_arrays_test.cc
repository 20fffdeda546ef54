// Arrays that stay on the server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "reduced/client.h"
#include "tests/unit/client/fake_server.h"

namespace reduced::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;

// Puts `array_`, having noted what was sent.
class ArrayTest : public CallTest {
 protected:
  void SetUp() override {
    CallTest::SetUp();
    service_.put.set_id("0123456789abcdef");
    service_.put.mutable_array()->set_dtype(v1::DTYPE_F32);
    service_.put.mutable_array()->add_shape(3);
    service_.put.set_bytes(12);
    service_.put.set_device("cuda:0");
    service_.put.set_owner("me");
    service_.put.set_expires_in_ms(1500);
    service_.on_put = [this](const v1::PutArrayRequest& request) {
      if (request.has_header()) {
        header_ = request.header();
      } else {
        elements_sent_ += request.chunk();
      }
      return grpc::Status::OK;
    };
    service_.on_delete = [this](const v1::DeleteArrayRequest& request) {
      deleted_.push_back(absl::StrCat(request.owner(), "/", request.id()));
      return grpc::Status::OK;
    };
  }

  v1::PutArrayHeader header_;
  std::string elements_sent_;
  std::vector<std::string> deleted_;
};

TEST_F(ArrayTest, HasADefaultOwner) {
  const std::string owner = client_->DefaultOwner();
  EXPECT_THAT(owner, MatchesRegex("[^@]+@[^@]+"));
  EXPECT_LE(owner.size(), 64U);
  // A token says who its client is.
  const std::string file = ::testing::TempDir() + "/reduced_token_" + absl::StrCat(getpid());
  std::ofstream(file) << "0123456789abcdef0123456789abcdef";
  const auto client = Client::Create({.server = address_, .token_file = file});
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ((*client)->DefaultOwner(), "");
  std::filesystem::remove(file);
}

TEST_F(ArrayTest, IsPutReducedAndDeleted) {
  {
    const absl::StatusOr<ResidentArray> array =
        client_->Put(array_, {.device = "cuda:0", .owner = "me", .ttl = absl::Milliseconds(1500)});
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(header_.array().dtype(), v1::DTYPE_F32);
    EXPECT_THAT(header_.array().shape(), ElementsAre(3));
    EXPECT_EQ(header_.device(), "cuda:0");
    EXPECT_EQ(header_.owner(), "me");
    EXPECT_EQ(header_.ttl_ms(), 1500);
    EXPECT_EQ(elements_sent_, std::string(reinterpret_cast<const char*>(elements_.data()), 12));
    EXPECT_EQ(array->id(), "0123456789abcdef");
    EXPECT_EQ(array->device(), "cuda:0");
    EXPECT_EQ(array->info().dtype, "f32");
    EXPECT_THAT(array->info().shape, ElementsAre(3));
    EXPECT_EQ(array->info().bytes, 12);
    EXPECT_EQ(array->info().expires_in, absl::Milliseconds(1500));

    v1::ReduceRequest seen;
    service_.on_reduce = [&](const v1::ReduceRequest& request, v1::ReduceResponse* response) {
      seen = request;
      response->set_count(3);
      return grpc::Status::OK;
    };
    const absl::StatusOr<Reply> reply = client_->Reduce(*array, {"sum"}, {.ddof = 2});
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(reply->via, "resident");
    EXPECT_EQ(reply->count, 3);
    EXPECT_EQ(seen.array_id(), "0123456789abcdef");
    EXPECT_FALSE(seen.has_array());
    EXPECT_THAT(seen.ops(), ElementsAre(v1::OP_SUM));
    EXPECT_EQ(seen.options().ddof(), 2);

    absl::Notification finished;
    absl::StatusOr<Reply> answer;
    client_->ReduceAsync(*array, {"max"}, {}, [&](absl::StatusOr<Reply> later) {
      answer = std::move(later);
      finished.Notify();
    });
    ASSERT_TRUE(finished.WaitForNotificationWithTimeout(kLong));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->via, "resident");
    EXPECT_THAT(seen.ops(), ElementsAre(v1::OP_MAX));
    EXPECT_THAT(deleted_, IsEmpty());
  }
  EXPECT_THAT(deleted_, ElementsAre("me/0123456789abcdef"));
}

TEST_F(ArrayTest, IsDeletedOnceByWhoHasIt) {
  {
    absl::StatusOr<ResidentArray> first = client_->Put(array_);
    ASSERT_TRUE(first.ok());
    EXPECT_EQ(header_.owner(), "");
    EXPECT_EQ(header_.ttl_ms(), 0);
    ResidentArray moved = *std::move(first);
    service_.put.set_id("second");
    absl::StatusOr<ResidentArray> second = client_->Put(array_);
    ASSERT_TRUE(second.ok());
    moved = *std::move(second);
    EXPECT_THAT(deleted_, ElementsAre("me/0123456789abcdef"));
    EXPECT_EQ(moved.id(), "second");
    client_.reset();  // it needs no client
  }
  EXPECT_THAT(deleted_, ElementsAre("me/0123456789abcdef", "me/second"));
}

TEST_F(ArrayTest, StaysIfItIsReleased) {
  {
    absl::StatusOr<ResidentArray> array = client_->Put(array_);
    ASSERT_TRUE(array.ok());
    EXPECT_EQ(array->Release(), "0123456789abcdef");
  }
  EXPECT_THAT(deleted_, IsEmpty());
  service_.on_list = [this](const v1::ListArraysRequest& request, v1::ListArraysResponse* response) {
    EXPECT_EQ(request.owner(), "me");
    *response->add_arrays() = service_.put;
    response->mutable_arrays(0)->set_age_ms(7);
    response->mutable_arrays(0)->set_users(2);
    return grpc::Status::OK;
  };
  const auto listed = client_->ListArrays("me");
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->size(), 1U);
  EXPECT_EQ(listed->front().id, "0123456789abcdef");
  EXPECT_EQ(listed->front().owner, "me");
  EXPECT_EQ(listed->front().age, absl::Milliseconds(7));
  EXPECT_EQ(listed->front().users, 2);
  EXPECT_TRUE(client_->DeleteArray("0123456789abcdef", "me").ok());
  EXPECT_THAT(deleted_, ElementsAre("me/0123456789abcdef"));
}

TEST_F(ArrayTest, ResultsThatAreKeptCanBeOwned) {
  ResultArray kept{.op = "sum", .array = {.dtype = "f64", .shape = {2, 3}}, .id = "an id"};
  {
    const absl::StatusOr<ResidentArray> array = client_->Own(kept, "me");
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->id(), "an id");
    EXPECT_EQ(array->info().dtype, "f64");
    EXPECT_THAT(array->info().shape, ElementsAre(2, 3));
    EXPECT_EQ(array->info().bytes, 48);
    EXPECT_THAT(deleted_, IsEmpty());
  }
  EXPECT_THAT(deleted_, ElementsAre("me/an id"));
  kept.id.clear();
  EXPECT_THAT(std::string(client_->Own(kept).status().message()), HasSubstr("kept: got results without an id"));
}

TEST_F(ArrayTest, ListsAllPages) {
  std::vector<std::string> tokens;
  service_.on_list = [&](const v1::ListArraysRequest& request, v1::ListArraysResponse* response) {
    EXPECT_EQ(request.owner(), "me");
    tokens.push_back(request.page_token());
    for (int i = 0; i < 2; ++i) {
      v1::ArrayInfo& array = *response->add_arrays();
      v1::PutArrayHeader header;
      header.set_owner("me");
      header.mutable_array()->set_dtype(v1::DTYPE_F32);
      header.mutable_array()->add_shape(1);
      Complete(header, &array);
      array.set_id(absl::StrCat(tokens.size(), "-", i));
    }
    if (tokens.size() < 3) response->set_next_page_token(absl::StrCat("page ", tokens.size()));
    return grpc::Status::OK;
  };
  const auto listed = client_->ListArrays("me");
  ASSERT_TRUE(listed.ok()) << listed.status();
  std::vector<std::string> ids;
  for (const ArrayInfo& array : *listed) ids.push_back(array.id);
  EXPECT_THAT(ids, ElementsAre("1-0", "1-1", "2-0", "2-1", "3-0", "3-1"));
  EXPECT_THAT(tokens, ElementsAre("", "page 1", "page 2"));
}

TEST_F(ArrayTest, ErrorsAreTheServersOrSeenBeforeSending) {
  EXPECT_THAT(std::string(client_->Put({nullptr, "f24", {0}}).status().message()), HasSubstr("dtype: got "));
  EXPECT_THAT(std::string(client_->Put(array_, {.ttl = -absl::Seconds(1)}).status().message()),
              HasSubstr("ttl: got -1s; allowed: "));
  EXPECT_THAT(std::string(client_->Put(array_, {.timeout = absl::ZeroDuration()}).status().message()),
              HasSubstr("timeout: got 0; allowed: "));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->Reduce(RemoteArray::Resident("x"), {}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(client_->DeleteArray("x", "", absl::ZeroDuration())));
  EXPECT_EQ(header_.ByteSizeLong(), 0U);  // nothing was sent
  ASSERT_TRUE(client_->Put(array_, {.ttl = absl::Nanoseconds(1)}).ok());
  EXPECT_EQ(header_.ttl_ms(), 1);  // not 0, the default

  // Wrong parameters are seen before an array is stored for an op of the distribution.
  header_.Clear();
  const std::vector<float> large(std::size_t{10} << 20);
  const ArrayView view = ArrayView::Of(large);
  for (const char* const op : {"topk(0)", "quantile(2)", "histogram(edges=1,0)", "histogram(0,1,0)"}) {
    for (const absl::Status& status :
         {client_->Reduce(view, {op}).status(), client_->ReduceArray(view, {op}, {.axis = {0}}).status()}) {
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << op << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("calls[0]."));
    }
  }
  EXPECT_EQ(header_.ByteSizeLong(), 0U);

  service_.on_put = [](const auto&) { return grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "full"); };
  EXPECT_EQ(client_->Put(array_).status(), absl::ResourceExhaustedError("full"));
  service_.on_delete = [](const auto&) { return grpc::Status(grpc::StatusCode::PERMISSION_DENIED, "theirs"); };
  EXPECT_EQ(client_->DeleteArray("x", "me"), absl::PermissionDeniedError("theirs"));
  service_.answer = false;
  EXPECT_TRUE(absl::IsDeadlineExceeded(client_->Put(array_, {.timeout = absl::Milliseconds(50)}).status()));
}

}  // namespace
}  // namespace reduced::client
