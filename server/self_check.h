// The self-check of the engines at the start of a server.
#ifndef REDUCED_SERVER_SELF_CHECK_H_
#define REDUCED_SERVER_SELF_CHECK_H_

#include "absl/status/status.h"
#include "kernels/engine/engines.h"

namespace reduced::server {

// Lets each engine reduce arrays of i32 and f32 with known answers: a small array, which it may reduce on the calling
// thread, and one that takes a lane; in host memory and, if the engine stores arrays, in its own. Takes milliseconds.
// INTERNAL: an answer is wrong; the message has the engine, the question, the answer and the correct answer. Or an
// error of the engine. `on_hang`: what to do if a device hangs meanwhile.
absl::Status SelfCheck(const Engines& engines, const OnHang& on_hang = nullptr);

}  // namespace reduced::server

#endif  // REDUCED_SERVER_SELF_CHECK_H_
