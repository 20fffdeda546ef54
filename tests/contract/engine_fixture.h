// The engine that a test of the contract runs on, by the test's parameter: EngineKind, or EngineKind and DType.
#ifndef REDUCED_TESTS_CONTRACT_ENGINE_FIXTURE_H_
#define REDUCED_TESTS_CONTRACT_ENGINE_FIXTURE_H_

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "gtest/gtest.h"
#include "kernels/engine/engines.h"
#include "kernels/engine/pipelines.h"
#include "tests/support/runs.h"

namespace reduced::test {

using KindAndDType = std::tuple<EngineKind, DType>;

inline EngineKind KindOf(EngineKind kind) { return kind; }
template <class Second>
EngineKind KindOf(const std::tuple<EngineKind, Second>& param) {
  return std::get<EngineKind>(param);
}

// An engine of that kind with those options. Null if this build or machine has no CUDA: then the test is skipped, or
// fails if the environment variable REDUCED_REQUIRE_GPU is set; the caller returns.
struct Started {
  std::unique_ptr<Engines> owner;
  Engine* engine = nullptr;
};
inline Started StartEngine(EngineKind kind, EngineOptions options, std::string* why_not) {
  options.cuda = kind == EngineKind::kCuda;
  if (options.cuda_devices.empty()) options.cuda_devices = {0};
  absl::StatusOr<std::unique_ptr<Engines>> engines = Engines::Start(options);
  if (!engines.ok()) {
    *why_not = engines.status().ToString();
    return {};
  }
  const absl::StatusOr<Engine*> engine = (*engines)->Get(kind);
  if (!engine.ok()) {
    *why_not = (*engines)->no_cuda_reason();
    return {};
  }
  return {*std::move(engines), *engine};
}

// The engines that all suites share, one of each kind that a test asks for: to start one takes as long as many tests.
// They stop after the last test.
class SharedEngines : public ::testing::Environment {
 public:
  struct Shared {
    Started started;
    std::string why_not;  // why there is none
  };
  static const Shared& Of(EngineKind kind, const EngineOptions& options) {
    const auto [at, is_new] = shared_.try_emplace(kind);
    if (is_new) at->second.started = StartEngine(kind, options, &at->second.why_not);
    return at->second;
  }
  void TearDown() override { shared_.clear(); }

 private:
  static inline std::map<EngineKind, Shared> shared_;
};
inline ::testing::Environment* const kSharedEngines = ::testing::AddGlobalTestEnvironment(new SharedEngines);

template <class Param>
class EngineTest : public ::testing::TestWithParam<Param> {
 protected:
  // Chunks far smaller than the default, so that arrays of the usual test sizes span several.
  static EngineOptions Options() {
    EngineOptions options;
    options.chunk_bytes = 16 << 10;
    return options;
  }

  void SetUp() override {
    const SharedEngines::Shared& shared = SharedEngines::Of(kind(), Options());
    shared_ = &shared.started;
    if (shared_->engine != nullptr) return;
    if (kind() == EngineKind::kCpu || std::getenv("REDUCED_REQUIRE_GPU") != nullptr) {
      FAIL() << "no engine: " << shared.why_not;
    }
    GTEST_SKIP() << "no CUDA engine: " << shared.why_not;
  }

  EngineKind kind() const { return KindOf(this->GetParam()); }
  // The shared engine, with Options().
  Engine& engine() const { return *shared_->engine; }
  // What answers for so many elements alone, with which arrays of answers are compared: the shared engine; for few
  // elements the CPU's, which has the same bits, since many launches for a few elements each would take minutes.
  Engine& engine_for(std::int64_t elements) const {
    constexpr std::int64_t kFew = 1000;
    return elements < kFew ? **shared_->owner->Get(EngineKind::kCpu) : engine();
  }
  // One of this test's own. Only called where the shared engine started.
  Started StartOwn(const EngineOptions& options) const {
    std::string why_not;
    Started started = StartEngine(kind(), options, &why_not);
    EXPECT_NE(started.engine, nullptr) << why_not;
    return started;
  }

  ReduceSpec Spec(DType dtype, std::int64_t count) const {
    ReduceSpec spec;
    spec.dtype = dtype;
    spec.count = count;
    spec.ops = OpsOf(dtype);
    spec.engine = kind();
    return spec;
  }

 private:
  const Started* shared_ = nullptr;
};

inline std::string NameOfKind(const ::testing::TestParamInfo<EngineKind>& info) {
  return std::string(NameOf(info.param));
}
inline std::string NameOfDType(const ::testing::TestParamInfo<KindAndDType>& info) {
  return std::string(RowOf(std::get<DType>(info.param)).name);
}

inline std::vector<DType> AllDTypes() {
  std::vector<DType> dtypes;
  for (const DTypeRow& row : kDTypes) dtypes.push_back(row.dtype);
  return dtypes;
}

}  // namespace reduced::test

// The suite on both engines: ctest picks one by the prefix.
#define REDUCED_INSTANTIATE_BY_KIND(suite)                                               \
  INSTANTIATE_TEST_SUITE_P(Cpu, suite, ::testing::Values(EngineKind::kCpu), NameOfKind); \
  INSTANTIATE_TEST_SUITE_P(Cuda, suite, ::testing::Values(EngineKind::kCuda), NameOfKind)
#define REDUCED_INSTANTIATE_BY_KIND_AND_DTYPE(suite)                                                                   \
  INSTANTIATE_TEST_SUITE_P(Cpu, suite,                                                                                 \
                           ::testing::Combine(::testing::Values(EngineKind::kCpu), ::testing::ValuesIn(AllDTypes())),  \
                           NameOfDType);                                                                               \
  INSTANTIATE_TEST_SUITE_P(Cuda, suite,                                                                                \
                           ::testing::Combine(::testing::Values(EngineKind::kCuda), ::testing::ValuesIn(AllDTypes())), \
                           NameOfDType)
// The suite on the CUDA engine alone, of some dtypes.
#define REDUCED_INSTANTIATE_ON_CUDA(suite, ...)                                                                      \
  INSTANTIATE_TEST_SUITE_P(Cuda, suite,                                                                              \
                           ::testing::Combine(::testing::Values(EngineKind::kCuda), ::testing::Values(__VA_ARGS__)), \
                           NameOfDType)

#endif  // REDUCED_TESTS_CONTRACT_ENGINE_FIXTURE_H_
