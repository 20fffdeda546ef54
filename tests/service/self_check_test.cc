// Before a server serves: engines that answer right, wrong, or not at all.
#include "server/self_check.h"

#include <memory>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/algebra/partial.h"
#include "kernels/exact/sums.h"
#include "tests/service/test_server.h"

namespace reduced::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Loses the last element of arrays that it is given, if they are larger than `from`, or fails.
class FaultyEngine final : public SharedEngine {
 public:
  FaultyEngine(std::int64_t from, absl::Status status) : from_(from), status_(std::move(status)) {}

  void Reduce(Job job, Done done) override {
    if (!status_.ok()) return std::move(done)(status_);
    const bool faulty = job.spec.count >= from_;
    const std::int64_t count = job.spec.count;
    if (faulty) --job.spec.count;
    CpuEngine().Reduce(std::move(job), [done = std::move(done), count](absl::StatusOr<Answer> result) mutable {
      if (result.ok()) result->state.partial.count = count;
      std::move(done)(std::move(result));
    });
  }

 private:
  const std::int64_t from_;
  const absl::Status status_;
};

absl::Status Check(std::int64_t from, absl::Status status = absl::OkStatus()) {
  return SelfCheck(*OnlyEngine(std::make_unique<FaultyEngine>(from, std::move(status))));
}

TEST(SelfCheckTest, RightAnswersPass) { EXPECT_TRUE(SelfCheck(*SharedEngines()).ok()); }

TEST(SelfCheckTest, WrongAnswersAreFoundBySizeAndSayWhatIsRight) {
  const absl::Status small = Check(1);
  EXPECT_EQ(small.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(small.message()),
              AllOf(HasSubstr("engine cpu failed its self-check"), HasSubstr("sum of 1 to 1000, as i32: got 499500"),
                    HasSubstr("correct: 500500")));
  EXPECT_THAT(std::string(Check(100'000).message()), HasSubstr("correct: 5000350006"));
}

// A device that is full of others' arrays can't take the check's, but reduces.
TEST(SelfCheckTest, ADeviceWithoutRoomPasses) {
  class Full final : public SharedEngine {
   public:
    absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t, std::uint64_t) override {
      return absl::ResourceExhaustedError("full");
    }
  };
  const absl::Status status = SelfCheck(*OnlyEngine(std::make_unique<Full>()));
  EXPECT_TRUE(status.ok()) << status;
}

TEST(SelfCheckTest, ExactSumsOfFloatsAreChecked) {
  class Doubler final : public SharedEngine {
   public:
    void Reduce(Job job, Done done) override {
      CpuEngine().Reduce(std::move(job), [done = std::move(done)](absl::StatusOr<Answer> result) mutable {
        if (result.ok() && result->state.exact != nullptr) {
          Merge(ExactSums(*result->state.exact), result->state.exact.get());
        }
        std::move(done)(std::move(result));
      });
    }
  };
  const absl::Status status = SelfCheck(*OnlyEngine(std::make_unique<Doubler>()));
  EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(status.message()), HasSubstr("sum of 1 to 1000, as f32: got 1.001e+06; correct: 500500"));
}

TEST(SelfCheckTest, FailuresAreTheEnginesOwn) {
  const absl::Status status = Check(1, absl::UnavailableError("the CUDA device failed: out of luck"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("engine cpu"), HasSubstr("out of luck")));
}

TEST(SelfCheckTest, ArraysThatAreKeptAreCheckedToo) {
  // Takes what it is to keep, and keeps something else.
  class Forgetful final : public SharedEngine {
   public:
    absl::StatusOr<std::unique_ptr<ArrayMemory>> Allocate(std::int64_t bytes, std::uint64_t /*caller*/) override {
      class Memory final : public ArrayMemory {
       public:
        explicit Memory(std::unique_ptr<ArrayMemory> memory) : memory_(std::move(memory)) {}
        ArrayRef array() const override { return memory_->array(); }
        absl::Status Write(std::int64_t offset, const void* data, std::int64_t size) override {
          return memory_->Write(offset, data, size - 4);
        }
        absl::Status Read(std::int64_t offset, std::int64_t size, void* to) const override {
          return memory_->Read(offset, size, to);
        }

       private:
        const std::unique_ptr<ArrayMemory> memory_;
      };
      auto memory = CpuEngine().Allocate(bytes);
      if (!memory.ok()) return memory.status();
      const std::string zeros(static_cast<std::size_t>(bytes), '\0');
      EXPECT_TRUE((*memory)->Write(0, zeros.data(), bytes).ok());
      return std::make_unique<Memory>(*std::move(memory));
    }
  };
  EXPECT_THAT(std::string(SelfCheck(*OnlyEngine(std::make_unique<Forgetful>())).message()),
              HasSubstr("correct: 500500"));
}

}  // namespace
}  // namespace reduced::server
