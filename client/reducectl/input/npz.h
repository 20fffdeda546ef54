// .npz files: zip archives of .npy files.
#ifndef REDUCED_CLIENT_REDUCECTL_INPUT_NPZ_H_
#define REDUCED_CLIENT_REDUCECTL_INPUT_NPZ_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client/reducectl/input/archive.h"
#include "client/reducectl/input/input.h"

namespace reduced::client {

// The arrays that are asked for, of such an archive. One that can't be read is a Piece with a status.
absl::StatusOr<std::unique_ptr<InputReader>> OpenNpz(std::shared_ptr<Archive> archive, const InputOptions& options);

}  // namespace reduced::client

#endif  // REDUCED_CLIENT_REDUCECTL_INPUT_NPZ_H_
