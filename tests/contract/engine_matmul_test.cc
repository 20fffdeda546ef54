// The matrix product's rungs: each on odd sides, against the closed form and the product of the host.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "kernels/matmul/host.h"
#include "tests/contract/engine_fixture.h"
#include "tests/support/data.h"

namespace reduced {
void PrintTo(const MatmulRow* row, std::ostream* out) { *out << row->name; }
}  // namespace reduced

namespace reduced::test {
namespace {

using KindAndRow = std::tuple<EngineKind, const MatmulRow*>;

std::vector<const MatmulRow*> RowsOf(EngineKind kind) {
  std::vector<const MatmulRow*> rows;
  for (const MatmulRow& row : MatmulRows()) {
    if (row.engine == kind) rows.push_back(&row);
  }
  return rows;
}

struct Sides {
  std::int64_t m, n, k;
};

// Around every tile; one dimension of 1; no and one step; rows aligned to 16 bytes, and not.
constexpr Sides kSides[] = {{1, 1, 1},    {1, 1, 0},   {5, 3, 0},    {1, 300, 7},   {300, 1, 33},   {33, 31, 1},
                            {32, 32, 32}, {64, 64, 8}, {16, 48, 64}, {129, 67, 33}, {127, 130, 66}, {260, 140, 100}};

class EngineMatmul : public EngineTest<KindAndRow> {
 protected:
  void SetUp() override {
    EngineTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (const absl::Status can = engine().CheckMatmul(row()); !can.ok()) GTEST_SKIP() << can.ToString();
  }
  const MatmulRow& row() const { return *std::get<const MatmulRow*>(GetParam()); }
  MatmulSpec SpecOf(DType dtype, const Sides& sides) const {
    return {.row = &row(), .dtype = dtype, .m = sides.m, .n = sides.n, .k = sides.k};
  }

  absl::StatusOr<MatmulMeasurement> MultiplyAndWait(MatmulJob job, int repeats) {
    absl::Notification done;
    absl::StatusOr<MatmulMeasurement> measurement = absl::UnknownError("not called");
    engine().MeasureMatmul(std::move(job), repeats, [&](absl::StatusOr<MatmulMeasurement> result) {
      measurement = std::move(result);
      done.Notify();
    });
    done.WaitForNotification();  // ends with the job: nothing in it waits for anyone
    return measurement;
  }

  // Measures one product, which is checked in both ways that there are for its matrices.
  void Check(const MatmulSpec& spec, bool source_fill, int repeats) {
    ASSERT_TRUE(ValidateMatmul(spec).ok()) << ValidateMatmul(spec);
    SCOPED_TRACE(absl::StrCat(std::string(RowOf(spec.dtype).name), " ", spec.m, " x ", spec.n, " x ", spec.k, " tile ",
                              spec.tile, " block ", spec.block.x, " x ", spec.block.y));
    Bytes a = MakeData(DataKind::kUniform, spec.dtype, spec.m * spec.k, 1);
    Bytes b = MakeData(DataKind::kUniform, spec.dtype, spec.k * spec.n, 2);
    if (source_fill) {
      FillSourceA(spec, 0, spec.m * spec.k, a.data());
      FillSourceB(spec, 0, spec.k * spec.n, b.data());
    }
    const auto never = [] { return absl::OkStatus(); };
    std::vector<std::uint64_t> values(static_cast<std::size_t>(spec.m * spec.n));
    ExpectedProduct product(spec);
    ExpectedProduct closed(spec);
    ASSERT_TRUE(product.Study(a.data(), b.data(), never).ok());
    ASSERT_TRUE(closed.Study(a.data(), b.data(), never).ok());
    ASSERT_TRUE(product.Multiply(a.data(), b.data(), 2, values.data(), never).ok());
    std::vector<std::byte> c(static_cast<std::size_t>(spec.bytes_c()), std::byte{0xff});
    int looks = 0;
    MatmulJob job{.spec = spec, .a = a.data(), .b = b.data(), .c = c.data()};
    job.is_right = [&] {
      ++looks;
      return product.Allows(c.data()) && (!source_fill || closed.Allows(c.data()));
    };
    const absl::StatusOr<MatmulMeasurement> measured = MultiplyAndWait(std::move(job), repeats);
    ASSERT_TRUE(measured.ok()) << measured.status();
    EXPECT_TRUE(measured->correct);
    EXPECT_GE(looks, 1);
    EXPECT_EQ(measured->kernel_us.size(), static_cast<std::size_t>(repeats));
    EXPECT_EQ(measured->ran.pipeline, row().name);
    EXPECT_TRUE(measured->same_bits || row().cublas);
    EXPECT_EQ(measured->peak_gflops.has_value(), kind() == EngineKind::kCuda);
    EXPECT_EQ(measured->occupancy.has_value(), kind() == EngineKind::kCuda && !row().cublas);
  }
};

TEST_P(EngineMatmul, OddSides) {
  for (const DType dtype : kMatmulDTypes) {
    if (!Supports(row(), dtype)) continue;
    for (const Sides& sides : kSides) {
      for (const int tile : kMatmulTiles) {
        if (!row().tiles && tile != kDefaultMatmulTile) continue;
        MatmulSpec spec = SpecOf(dtype, sides);
        spec.tile = tile;
        Check(spec, /*source_fill=*/false, 1);
        Check(spec, /*source_fill=*/true, 1);
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(EngineMatmul, EveryBlockShape) {
  if (!row().blocks) return;
  for (const BlockShape& block : kMatmulBlocks) {
    MatmulSpec spec = SpecOf(DType::kF32, {70, 45, 19});
    spec.block = block;
    Check(spec, /*source_fill=*/false, 1);
  }
}

TEST_P(EngineMatmul, RepeatsHaveTheSameBits) { Check(SpecOf(DType::kF64, {200, 150, 300}), /*source_fill=*/false, 3); }

TEST_P(EngineMatmul, StopsForTheCallerAndTheDeadline) {
  const std::vector<double> matrix(64 * 64);
  std::vector<double> c(64 * 64);
  const auto job = [&] {
    return MatmulJob{.spec = SpecOf(DType::kF64, {64, 64, 64}),
                     .a = matrix.data(),
                     .b = matrix.data(),
                     .c = c.data(),
                     .is_right = [] { return true; }};
  };
  MatmulJob cancelled = job();
  cancelled.cancelled = std::make_shared<std::atomic<bool>>(true);
  EXPECT_EQ(MultiplyAndWait(std::move(cancelled), 1000).status().code(), absl::StatusCode::kCancelled);
  MatmulJob late = job();
  late.deadline = absl::Now();
  EXPECT_EQ(MultiplyAndWait(std::move(late), 1000).status().code(), absl::StatusCode::kDeadlineExceeded);
}

template <class Info>
std::string NameOfRow(const Info& info) {
  return std::string(std::get<const MatmulRow*>(info.param)->name);
}

INSTANTIATE_TEST_SUITE_P(Cpu, EngineMatmul,
                         ::testing::Combine(::testing::Values(EngineKind::kCpu),
                                            ::testing::ValuesIn(RowsOf(EngineKind::kCpu))),
                         NameOfRow<::testing::TestParamInfo<KindAndRow>>);
#ifdef REDUCED_HAVE_CUDA
INSTANTIATE_TEST_SUITE_P(Cuda, EngineMatmul,
                         ::testing::Combine(::testing::Values(EngineKind::kCuda),
                                            ::testing::ValuesIn(RowsOf(EngineKind::kCuda))),
                         NameOfRow<::testing::TestParamInfo<KindAndRow>>);
#endif

}  // namespace
}  // namespace reduced::test
