// The memory of a ring: how a process on the server's machine sends the requests of a session through shared memory.
// README.md beside this file is the protocol, byte by byte; this file is the same in C++.
//
// A ring is one memfd of the server: a header, `slots` submissions that the client writes, `slots` completions that the
// server writes, and the arena for elements and messages. All numbers are little-endian and aligned to their size.
//
// Each side may write anything at any time. The server copies a submission before it looks at it (CopyOut), keeps the
// geometry itself, and never reads back what it has written.
#ifndef REDUCED_PROTO_RING_LAYOUT_H_
#define REDUCED_PROTO_RING_LAYOUT_H_

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace reduced::ring {

inline constexpr std::uint32_t kMagic = 0x676e6972;  // "ring"
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kMaxSlots = 1024;
inline constexpr std::size_t kMaxOps = 16;  // of the fixed form; a message may have more
inline constexpr std::size_t kNameBytes = 64;
inline constexpr std::size_t kPageBytes = 4096;

// The first page. What each side writes has a cache line of its own.
struct Header {
  // Written by the server before anybody else has the memory.
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t slots;  // a power of two
  std::uint32_t reserved;
  std::uint64_t submissions_offset;  // bytes from the start of the memory
  std::uint64_t completions_offset;
  std::uint64_t arena_offset;
  std::uint64_t arena_bytes;
  // Written by the server: how many submissions it has copied.
  alignas(64) std::uint64_t taken;
  // Written by the server: 1: it sleeps, and who submits has to write to the doorbell.
  alignas(64) std::uint32_t asleep;
  // Written by both: see Bell.
  alignas(64) std::uint32_t bell;
  // Written by the server, last: 1: the ring has ended, and nothing is answered any more.
  alignas(64) std::uint32_t ended;
  char unused[kPageBytes - 4 * 64 - 4];
};
static_assert(sizeof(Header) == kPageBytes && std::is_standard_layout_v<Header>);
static_assert(offsetof(Header, submissions_offset) == 16 && offsetof(Header, arena_bytes) == 40);
static_assert(offsetof(Header, taken) == 64 && offsetof(Header, asleep) == 128 && offsetof(Header, bell) == 192 &&
              offsetof(Header, ended) == 256);

enum class Kind : std::uint8_t {
  kReduce = 1,
  kCancel = 2,  // ends the request that has this id; has no completion
  // The message is a ReduceManyRequest, and the reply a ReduceManyResponse; the source is kMessage.
  kReduceMany = 3,
};

// Where the elements are.
enum class Source : std::uint8_t {
  kMessage = 0,   // where the message says
  kArena = 1,     // `bytes` bytes from `offset` of the arena on
  kResident = 2,  // the resident array whose id is `name`
  kRegion = 3,    // the region whose token is `name`, from byte `offset` on
};

// The flags of a submission.
inline constexpr std::uint32_t kRingBell = 1;  // the bell rings, too, when this request is answered
inline constexpr std::uint32_t kOpErrors = 2;  // as ReduceRequest.op_errors

// A request. Enums have the numbers of reduced.proto.
struct Submission {
  std::uint64_t sequence;    // n + 1 of the n-th submission, which is in slot n mod slots: published last
  std::uint64_t id;          // the client's choice, which the completion repeats
  std::uint32_t completion;  // the index of the completion, which no other request under way has
  std::uint8_t kind;
  std::uint8_t source;
  std::uint8_t dtype;
  std::uint8_t engine;
  std::uint8_t precision;
  std::uint8_t nan_policy;
  std::uint8_t overflow_policy;
  std::uint8_t op_count;
  std::uint32_t flags;
  std::uint8_t ops[kMaxOps];
  std::int64_t count;  // elements
  std::int64_t ddof;
  std::uint64_t timeout_us;  // 0: none
  std::uint64_t offset;
  std::uint64_t bytes;
  // A ReduceRequest, or by the kind another, in the arena, which replaces the fields from `dtype` to `ddof`; 0 bytes:
  // there is none.
  std::uint64_t message_offset;
  std::uint64_t message_bytes;
  // With a message: where in the arena the response goes, and its room.
  std::uint64_t reply_offset;
  std::uint64_t reply_bytes;
  char name[kNameBytes];  // padded with NUL
  char unused[72];
};
static_assert(sizeof(Submission) == 256 && std::is_standard_layout_v<Submission>);
static_assert(offsetof(Submission, completion) == 16 && offsetof(Submission, kind) == 20 &&
              offsetof(Submission, flags) == 28 && offsetof(Submission, ops) == 32 &&
              offsetof(Submission, count) == 48 && offsetof(Submission, timeout_us) == 64 &&
              offsetof(Submission, offset) == 72 && offsetof(Submission, message_offset) == 88 &&
              offsetof(Submission, reply_offset) == 104 && offsetof(Submission, name) == 120);

// The values of Completion.state, a futex word.
enum Progress : std::uint32_t {
  kPending = 0,   // set by the client before it submits
  kSleeping = 1,  // set by the client, if it is pending, before it sleeps
  kDone = 2,      // set by the server, which wakes who sleeps
};

// The values of Header.bell, a futex word.
enum Bell : std::uint32_t {
  kQuiet = 0,     // set by the client before it looks at its completions
  kListener = 1,  // set by the client, if it is quiet, before it sleeps
  kRung = 2,      // set by the server, which wakes who sleeps
};

// The stages of Completion.micros, as in Timing of reduced.proto. A stage that did not happen is NaN.
enum Stage : std::uint32_t {
  kReceive,
  kQueue,
  kHostCopy,
  kHostToDevice,
  kScratchCopy,
  kKernel,
  kDeviceToHost,
  kTotal,
  kStages
};

// An answer.
struct Completion {
  std::uint32_t state;
  std::uint32_t code;  // a gRPC status code; 0: OK
  std::uint64_t id;
  std::int64_t count;  // elements
  std::int64_t bytes;  // of the array
  std::uint32_t retry_after_ms;
  std::uint32_t reply_bytes;  // of the response in the arena, which replaces the fields below; 0: there is none
  std::uint8_t engine;
  std::uint8_t precision;
  std::uint8_t result_count;
  std::uint8_t dtypes[kMaxOps];  // of the results
  std::uint8_t reserved[5];
  double micros[kStages];
  std::uint64_t values[kMaxOps];  // the bits of an f64, an i64 or a u64; bool: 0 or 1
  char device[16];                // padded with NUL, as the next two
  char pipeline[32];
  char text[720];  // the message of an error, or why this engine was chosen
};
static_assert(sizeof(Completion) == 1024 && std::is_standard_layout_v<Completion>);
static_assert(offsetof(Completion, id) == 8 && offsetof(Completion, retry_after_ms) == 32 &&
              offsetof(Completion, engine) == 40 && offsetof(Completion, dtypes) == 43 &&
              offsetof(Completion, micros) == 64 && offsetof(Completion, values) == 128 &&
              offsetof(Completion, device) == 256 && offsetof(Completion, pipeline) == 272 &&
              offsetof(Completion, text) == 304);

// The parts of a ring's memory. Of `slots` slots, a power of two up to kMaxSlots, and an arena of `arena_bytes`.
struct Geometry {
  std::uint32_t slots = 0;
  std::uint64_t arena_bytes = 0;

  std::uint64_t submissions() const { return sizeof(Header); }
  std::uint64_t completions() const { return submissions() + std::uint64_t{slots} * sizeof(Submission); }
  std::uint64_t arena() const {
    const std::uint64_t end = completions() + std::uint64_t{slots} * sizeof(Completion);
    return (end + kPageBytes - 1) / kPageBytes * kPageBytes;
  }
  std::uint64_t bytes() const { return arena() + arena_bytes; }
  // Whether `bytes` bytes from `offset` on are within the arena.
  bool Has(std::uint64_t offset, std::uint64_t bytes) const {
    return offset <= arena_bytes && bytes <= arena_bytes - offset;
  }
};

// A ring's memory, mapped.
struct Mapping {
  std::byte* data = nullptr;
  Geometry geometry{};

  Header& header() const { return *reinterpret_cast<Header*>(data); }
  Submission& submission(std::uint64_t n) const {
    return reinterpret_cast<Submission*>(data + geometry.submissions())[n & (geometry.slots - 1)];
  }
  Completion& completion(std::uint32_t index) const {
    return reinterpret_cast<Completion*>(data + geometry.completions())[index];
  }
  std::byte* arena() const { return data + geometry.arena(); }
};

// A copy of a slot that somebody else may be writing. Every word of it is read once.
template <class Slot>
Slot CopyOut(const Slot& shared) {
  using Word [[gnu::may_alias]] = std::uint64_t;
  static_assert(std::is_trivially_copyable_v<Slot> && sizeof(Slot) % sizeof(Word) == 0);
  std::array<std::uint64_t, sizeof(Slot) / sizeof(std::uint64_t)> words;
  const auto* const from = reinterpret_cast<const Word*>(&shared);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = __atomic_load_n(from + i, __ATOMIC_RELAXED);
  return std::bit_cast<Slot>(words);
}

// A word of the memory, as an atomic.
template <class Word>
std::atomic_ref<Word> Shared(Word& word) {
  return std::atomic_ref<Word>(word);
}

}  // namespace reduced::ring

#endif  // REDUCED_PROTO_RING_LAYOUT_H_
