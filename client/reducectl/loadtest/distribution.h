// The correct answers of ops of the distribution, by sorting.
#ifndef REDUCED_CLIENT_REDUCECTL_LOADTEST_DISTRIBUTION_H_
#define REDUCED_CLIENT_REDUCECTL_LOADTEST_DISTRIBUTION_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "client/reducectl/loadtest/reference.h"
#include "kernels/algebra/dtype.h"
#include "kernels/algebra/op_call.h"

namespace reduced::client {

class Distribution {
 public:
  // At least one element; none is NaN, and each is exact in f64.
  Distribution(DType dtype, std::vector<double> elements);

  // `op`: the text of one of the distribution. INVALID_ARGUMENT: it has wrong parameters, is not defined for the dtype,
  // or asks for more elements than there are.
  absl::StatusOr<RightAnswer> Of(const std::string& op) const;

 private:
  Scalar Element(double value) const;
  std::vector<Scalar> Quantiles(const OpCall& call) const;
  std::vector<Scalar> Counts(const std::vector<double>& edges) const;
  std::vector<Scalar> Top(Op op, std::int64_t k) const;
  RightAnswer Distinct(bool exact) const;
  double Mode() const;
  RightAnswer Shape(bool kurtosis) const;

  const DType dtype_;
  const std::vector<double> elements_;
  std::vector<double> sorted_;  // ascending
};

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_LOADTEST_DISTRIBUTION_H_
