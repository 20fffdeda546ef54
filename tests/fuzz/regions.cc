// The region socket: packets with descriptors of every kind, in one connection.
//
// The input, for each packet: what it is (a number of kKinds), the number of descriptors and their kind, the length
// (2 bytes) and the text.
#include "server/sources/regions.h"

#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "google/protobuf/util/json_util.h"
#include "kernels/algebra/dtype.h"
#include "reduced/v1/regions.pb.h"
#include "server/sources/strided_region.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/no_engine.h"
#include "tests/fuzz/socket.h"
#include "tests/service/test_server.h"

namespace reduced::fuzz {
namespace {

enum Kind { kText, kShare, kPin, kRelease, kDevice, kFind, kKinds };

// Elements with the strides that the input has, of which some are read.
void FindStridedElements(const server::Regions& regions, v1::RegionPart part, Input& numbers) {
  constexpr DType kDTypes[] = {DType::kU8, DType::kU16, DType::kF32, DType::kF64};
  const DType dtype = kDTypes[numbers.Choice(4)];
  part.set_big_endian(numbers.Choice(2) == 1);
  if (part.offset() >= 0) part.set_offset(-1 - part.offset());
  std::vector<std::int64_t> shape;
  std::int64_t count = 1;
  while (!numbers.empty()) {
    const std::int64_t most = (std::int64_t{1} << 40) / std::max<std::int64_t>(count, 1);
    const std::int64_t extent = static_cast<std::int64_t>(numbers.Number<std::uint32_t>()) % (most + 1);
    shape.push_back(extent);
    count *= extent;
    part.add_strides(numbers.Number<std::int64_t>());
  }
  const auto found = FindStrided(regions, part, dtype, shape);
  RequirePrintableError(found.status());
  if (!found.ok() || count == 0) return;
  const std::int64_t width = RowOf(dtype).bytes;
  std::byte elements[8];
  for (const std::int64_t index : {std::int64_t{0}, count / 2, count - 1}) {
    const ArrayRef& array = found->array;
    if (array.read == nullptr && array.space != MemorySpace::kFile) continue;
    const absl::Status read = CopyElements(array, index * width, width, elements);
    Require(read.ok(), "the elements of an array that is within its region are read", read.message());
  }
}

struct Listener {
  server::TempDir folder;
  server::Regions regions{NoEngines(), {.max_connections = 64, .max_regions = 16}};
  std::string path = folder / "regions";
};

Listener& TheListener() {
  static Listener* const listener = [] {
    auto* const made = new Listener;
    const absl::Status started = made->regions.Start(made->path);
    Require(started.ok(), "the region socket opens", started.message());
    return made;
  }();
  return *listener;
}

int Memory(int seals, off_t bytes) {
  const int file = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const std::string data(static_cast<std::size_t>(bytes), '\1');
  Require(file >= 0 && write(file, data.data(), data.size()) == bytes, "there is memory");
  if (seals != 0) fcntl(file, F_ADD_SEALS, seals);
  return file;
}

int Sparse() {
  const int file = Memory(F_SEAL_SHRINK, 0);
  Require(ftruncate(file, off_t{1} << 40) == 0, "memory can have holes");
  return file;
}

int Pipe() {
  int ends[2];
  Require(pipe2(ends, O_CLOEXEC) == 0, "there are pipes");
  close(ends[1]);
  return ends[0];
}

int Descriptor(std::size_t kind) {
  switch (kind) {
    case 0:
      return Memory(0, 4096);
    case 1:
      return Memory(F_SEAL_SHRINK, 4096);
    case 2:
      return Memory(F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE, 10000);
    case 3:
      return Memory(F_SEAL_SHRINK, 0);
    case 4:
      return Sparse();
    case 5:
      return Pipe();
    case 6:
      return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    case 7:
      return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    case 8:
      return open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    case 9:
      return open("/dev/null", O_WRONLY | O_CLOEXEC);
    default:
      return open("/tmp", O_PATH | O_CLOEXEC);
  }
}
constexpr std::size_t kDescriptors = 11;

void Send(int socket, std::string text, const std::vector<int>& files) {
  iovec part{text.data(), text.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!files.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), files.data(), files.size() * sizeof(int));
  }
  const ssize_t sent = TEMP_FAILURE_RETRY(sendmsg(socket, &message, MSG_NOSIGNAL));
  Require(sent == static_cast<ssize_t>(text.size()), "a packet can be sent");
}

v1::RegionReply Receive(int socket) {
  std::string text(8192, '\0');
  const ssize_t bytes = TEMP_FAILURE_RETRY(recv(socket, text.data(), text.size(), 0));  // libFuzzer has a timer
  Require(bytes > 0, "every packet has an answer", std::strerror(errno));
  text.resize(static_cast<std::size_t>(bytes));
  v1::RegionReply reply;
  Require(google::protobuf::util::JsonStringToMessage(text, &reply).ok(), "an answer is a RegionReply", text);
  Require((reply.code() == 0) == reply.message().empty(), "an error has a message", text);
  return reply;
}

}  // namespace

FUZZ_TARGET(regions) {
  Listener& listener = TheListener();
  {
    const Socket socket(listener.path, SOCK_SEQPACKET);
    std::string token = "none";
    std::int64_t size = 0;
    for (int packets = 0; !input.empty() && packets < 32; ++packets) {
      const auto kind = static_cast<Kind>(input.Choice(kKinds));
      const std::size_t descriptors = input.Number();
      std::string text(input.TakePiece());
      std::vector<int> files;
      switch (kind) {
        case kShare:
          text = R"({"shareMemory": {}})";
          break;
        case kPin:
          text = R"({"shareMemory": {"pin": true}})";
          break;
        case kRelease:
          text = absl::StrCat(R"({"release": {"token": ")", token, R"("}})");
          break;
        case kFind: {
          Input numbers(text);
          v1::RegionPart part;
          part.set_token(token);
          part.set_offset(numbers.Number<std::int64_t>());
          const auto bytes = static_cast<std::int64_t>(numbers.Number<std::uint64_t>() >> 1);
          const auto found = listener.regions.Find(part, {.end = bytes});
          RequirePrintableError(found.status());
          if (found.ok()) {
            Require(part.offset() >= 0 && part.offset() <= size && bytes <= size - part.offset(),
                    "a part is within its region");
          }
          if (!numbers.empty()) FindStridedElements(listener.regions, part, numbers);
          continue;
        }
        default:
          break;
      }
      // Mostly the one that a share needs.
      const std::size_t count = kind == kShare || kind == kPin ? 1 : descriptors % 64 == 0 ? descriptors / 64 : 0;
      for (std::size_t i = 0; i < count; ++i) files.push_back(Descriptor(descriptors % kDescriptors));
      if (text.empty() && files.empty()) break;  // which ends the connection
      Send(socket.file(), std::move(text), files);
      for (const int file : files) close(file);
      const v1::RegionReply reply = Receive(socket.file());
      if (!reply.token().empty()) {
        token = reply.token();
        size = reply.bytes();
      }
    }
  }
  const absl::Time patience = absl::Now() + absl::Seconds(20);
  while (listener.regions.count() > 0) {
    Require(absl::Now() < patience, "regions end with their connection");
    absl::SleepFor(absl::Microseconds(20));
  }
}

}  // namespace reduced::fuzz
