// Whether the engines answer right, before a server says that it serves.
#ifndef REDUCED_SERVER_SELF_CHECK_H_
#define REDUCED_SERVER_SELF_CHECK_H_

#include "absl/status/status.h"
#include "kernels/engine/engines.h"

namespace reduced::server {

// Has each engine reduce arrays of i32 and f32 with known answers, as requests would: a small one, which it may reduce
// on the calling thread, and one that takes a lane, in host memory and, where the engine keeps arrays, in its own. Some
// milliseconds.
// INTERNAL: an answer is wrong; with the engine, the question, the answer and the right one. Else the engine's word.
absl::Status SelfCheck(const Engines& engines);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SELF_CHECK_H_
